GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: published check fmt vet platforms lint test tidy fuzz stress world mutants soak bench site

check: fmt vet platforms lint test tidy ## everything that must hold before a commit

fmt: ## fails if a file is not formatted, or has the marks of a merge
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	@! git grep -n -E '^(<<<<<<<|>>>>>>>) '

# What few programs need is in modules of its own, so that others do not read, test or require it: the
# adapters of PostgreSQL, Durable Objects and the AI SDK, Durable Streams, requests within the limits of
# others, the command, OpenTelemetry, and the examples with them. So are the
# benchmarks, the check of containers, the tests with frameworks and the collector. PUBLISHED are the modules
# that a release has; .ci/release checks that it is all of them.
PUBLISHED := . adapters/aisdk adapters/durableobject adapters/postgres cmd/penstock durablestreams otel outbound
MODULES := $(PUBLISHED) examples/aichat examples/chat/postgres examples/orders examples/production internal/benchmarks internal/containerlint internal/interop internal/otelcol

published: ## prints the folders of the modules that are released
	@echo $(PUBLISHED)

# Each stands for systems on which other files are compiled. The tests are checked on one, where numbers may be
# too large for an int.
PLATFORMS := linux/386/tests linux/arm64 darwin/arm64 windows/amd64 freebsd/amd64 js/wasm

vet:
	@set -e; for m in $(MODULES); do echo "go vet -C $$m ./..."; go vet -C $$m ./...; done

platforms: ## fails if a library cannot be compiled for other systems
	@set -e; for m in $(filter-out cmd/penstock,$(PUBLISHED)); do echo "platforms of $$m"; \
	  go run -C $$m github.com/penstock-go/penstock/internal/platforms $(PLATFORMS); done

lint:
	@failed=; for m in $(MODULES); do (cd $$m && $(GOLANGCI) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || failed="$$failed $$m"; done; \
	  test -z "$$failed" || { echo "lint has failed in$$failed" >&2; exit 1; }

test: ## the full tier; CONTRIBUTING.md explains the tiers
	@set -e; for m in $(filter-out internal/benchmarks internal/otelcol,$(MODULES)); do echo "PENSTOCK_TESTS=full go test -C $$m -race ./..."; PENSTOCK_TESTS=full go test -C $$m -race -shuffle=on ./...; done

tidy: ## fails if a go.mod is not tidy
	@set -e; for m in $(MODULES); do echo "go mod tidy -C $$m"; (cd $$m && go mod tidy -diff); done

FUZZTIME := 30s
fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for m in $(PUBLISHED); do for pkg in $$(go list -C $$m ./...); do \
	  for target in $$(go test -C $$m -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; go test -C $$m -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; \
	  done; done; done

STRESSTIME := 5m
stress: ## a router against misbehaving clients, and limiters on a failing Redis, for STRESSTIME each
	PENSTOCK_TESTS=$(STRESSTIME) go test -race -count=1 -v -timeout 0 ./internal/faults -run TestStress
	PENSTOCK_TESTS=$(STRESSTIME) go test -race -count=1 -v -timeout 0 ./adapters/redis -run TestLimiter_Chaos

WORLDTIME := 10m
world: ## simulated clusters with other seeds each time, for WORLDTIME; docs/how-penstock-is-tested.md explains what to do with one that fails
	@first=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo "the first seed is $$first"; \
	PENSTOCK_TESTS=$(WORLDTIME) go test -tags simulatedpoll -count=1 -v -timeout 0 -run '^TestSeeds$$' ./internal/simtest -first $$first

mutants: ## puts known faults into the product, one at a time, and prints which seed of internal/simtest finds each; one takes about a minute
	nice -n 10 go run ./internal/simtest/mutants

SOAK ?= 1h
soak: ## for SOAK each: recovery under random faults, and whether the chat on three nodes grows; SOAK_SEED=n repeats the first with that seed
	PENSTOCK_TESTS=$(SOAK) PENSTOCK_REQUIRE_REDIS=1 go test -count=1 -v -timeout 0 -run TestSoak ./internal/faults
	PENSTOCK_TESTS=$(SOAK) PENSTOCK_REQUIRE_REDIS=1 go test -C internal/interop -count=1 -v -timeout 0 -run TestSoak -artifacts ./soak

bench:
	go test -run '^$$' -bench . -benchmem ./...

site: ## the documentation as static files in website/.vitepress/dist; website/README.md has the variables
	npm ci --prefix website --no-audit --no-fund --ignore-scripts
	npm run build --prefix website
