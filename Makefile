GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: check fmt vet lint test tidy fuzz bench

check: fmt vet lint test tidy ## everything that must hold before a commit

fmt: ## fails if a file is not formatted
	@test -z "$$(gofmt -l . | tee /dev/stderr)"

# The benchmarks are a module of their own, lest their peers become dependencies.
MODULES := . internal/benchmarks

vet:
	@set -e; for m in $(MODULES); do echo "go vet -C $$m ./..."; go vet -C $$m ./...; done

lint:
	@set -e; for m in $(MODULES); do (cd $$m && $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...); done

test:
	go test -race -shuffle=on ./...

tidy: ## fails if go.mod is not tidy
	go mod tidy -diff

FUZZTIME := 30s
fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; done

bench:
	go test -run '^$$' -bench . -benchmem ./...
