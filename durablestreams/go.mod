module github.com/penstock-go/penstock/durablestreams

go 1.26.0

replace github.com/penstock-go/penstock => ..

require (
	github.com/penstock-go/penstock v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
