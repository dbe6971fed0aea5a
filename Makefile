# What developers run. Everything a target needs beside Go is checked, and on
# Debian installed, by .ci/need.
SHELL := /bin/bash
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

PKG      ?= ./...
FUZZRUNS ?= 300000
TIMEOUT  ?= 20m
RUNS     ?= 50
ARGS     ?=
DURATION ?= 2m
MODES    ?= aof,sentinel,cluster,quorum

# Most tests with real servers wait rather than work, so more packages than there are processors run at once, and more tests of each.
SIDE_BY_SIDE ?= 4

.DEFAULT_GOAL := help
.PHONY: help build dist quick test newer soak long race flakes lint bench tcl interop history faults quorum mutations nodes upgrade page alerts packaging simulation fuzz fmt cover weight dependencies tidy-check

# timed prints how long a ring of tests took, and keeps its exit code.
timed = start=$$SECONDS; code=0; $(2) || code=$$?; echo "make $(1): $$((SECONDS - start)) s, exit code $$code"; exit $$code

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/lockproxy
	go build -ldflags "-X main.commit=$$(git rev-parse --short=12 HEAD 2>/dev/null)" -o bin/lockproxy ./cmd/lockproxy

dist: ## packages in dist/: tar.gz, Debian, SBOM, chart, image, those for Python, Node, Go and Java; says what is missing; VERSION=1.2.3 ARCHS="amd64 arm64"
	VERSION=$(VERSION) COMMIT=$(COMMIT) ARCHS="$(ARCHS)" deploy/dist

# What takes longest begins first. What is in integration/ and needs no server is for make test. Tests are built without
# a vet of their own, which is for a part of what go vet looks at in quick and in lint, and without a debugger's tables, a third of the linker's work.
# Packages that sleep run beside those that work, and quick's garbage is collected less often, which was a tenth of its work.
UNIT = $(if $(filter ./...,$(PKG)),./internal/lock ./internal/simulation $$(go list ./... | grep -v /integration/),$(PKG))

quick: ## vet, and the tests that start no process, among them twenty-five simulated runs of a minute
	@$(call timed,quick,{ go vet $(PKG) && GOGC=400 go test -vet=off -ldflags=-w -short -p $(SIDE_BY_SIDE) -timeout $(TIMEOUT) $(ARGS) $(UNIT); })

# What takes longest begins first here, too, so that no package is left to run by itself at the end.
WHOLE = $(if $(filter ./...,$(PKG)),./integration/cluster ./integration/locks ./internal/session ./integration/faults ./integration/quorum ./internal/simulation ./internal/lock ./cluster )$(PKG)

test: ## quick's tests, and those with real servers, a few of them newer ones: some ten minutes on two processors; PKG=./upstream for one package
	@.ci/need redis-server redis-cli
	@$(call timed,test,{ go test -vet=off -ldflags=-w -p $(SIDE_BY_SIDE) -parallel $(SIDE_BY_SIDE) -timeout $(TIMEOUT) $(WHOLE)$(if $(filter ./...,$(PKG)), && .ci/newer short); })

newer: ## drop-in, locks, clusters and the real Redisson on Redis 8.2 and Valkey 8.1, a part of which make test has; SERVERS="/path/to/redis-server" for others
	.ci/newer

# internal/lock has one processor there, and go test would run only as many of its tests at once. So one package more than there are
# processors has something to do.
race: ## every test with the race detector; PKG=./internal/lock for one package
	@.ci/need redis-server redis-cli cc
	@$(call timed,race,go test -race -p $$(($$(nproc) + 1)) -parallel $$(nproc) -timeout 45m $(PKG))

soak: ## everything that takes long, its output in soak/: the race detector, long forms, the page, alerts, packages, histories, mutations, clusters, quorum, upgrades, newer servers, suites, clients, speed; then the simulation until you stop it
	@mkdir -p soak
	@failed=; for part in race long faults nodes page alerts packaging history quorum mutations newer interop tcl bench; do \
		start=$$SECONDS; code=0; $(MAKE) $$part DURATION=1h >soak/$$part.log 2>&1 || { code=$$?; failed="$$failed $$part"; }; \
		echo "soak: $$part: $$((SECONDS - start)) s, exit code $$code, soak/$$part.log"; \
	done; \
	if [ -n "$$failed" ]; then echo "soak: *** FAILED:$$failed ***"; exit 1; fi
	$(MAKE) simulation

simulation: ## the lock engine, its stores and Redis in simulated time, with new seeds until one fails; ARGS="-seed 7"
	go test ./internal/simulation -run '^TestSimulation$$' -count=1 -v -timeout 0 -args -forever -gap 0 $(ARGS)

flakes: ## every test RUNS (50) times alone and as often beside a load of 8; PKG=./cluster for one package; ARGS="-j 6 -t 60": six side by side, in an hour; logs in flakes/
	@.ci/need redis-server redis-cli
	.ci/flakes -n $(RUNS) $(ARGS) $(PKG)

lint: ## gofmt, go vet and staticcheck (pinned in go.mod)
	@unformatted=$$(find . -name '*.go' -not -path './.*' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "make fmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...

bench: ## lockproxy beside other proxies and other locks, 35 minutes; ARGS="-short", "-only locks", "-write docs/PERFORMANCE.md"
	@.ci/need redis-server redis-benchmark nutcracker haproxy
	go run ./bench $(ARGS)

tcl: ## Redis' own test suite through lockproxy; integration/tcl/README.md has the flags for ARGS="…"
	@.ci/need redis-server redis-cli tclsh dpkg-source
	go run ./integration/tcl $(ARGS)

interop: ## clients of every language found here, through the proxy, and the real Redisson beside it
	@.ci/need redis-server redis-cli
	@missing=; for tool in go python3 node npm java mvn cargo cc make ruby gem php dotnet; do \
		if command -v $$tool >/dev/null; then echo "interop: found $$tool ($$(command -v $$tool))"; \
		else missing="$$missing $$tool"; fi; done; \
	if [ -n "$$missing" ]; then echo "interop: *** MISSING, not tested:$$missing ***"; fi
	go test ./integration/... -run Interop -count=1 -v -timeout $(TIMEOUT)

history: ## random histories, 2 minutes of each profile; ARGS="-seed 1 -profile faults", all flags: integration/history/README.md
	@.ci/need redis-server
	go test ./integration/history -run '^TestHistory$$' -count=1 -v -timeout 2h -args -duration 2m $(ARGS)

# What fails is in the table, too, so the page is written whatever comes of the rounds.
faults: ## histories of a hundred clients, and the simulation, under faults, DURATION (2m) of each mode, and other locks: writes docs/FAULTS.md; ARGS="-seed 7"
	@.ci/need redis-server cc
	@mkdir -p soak; rm -f soak/faults.jsonl
	@code=0; \
	go test ./integration/history -run '^TestHistory$$' -count=1 -v -timeout 0 -args -profile $(MODES) -proxies 3 -clients 100 -round 1m \
		-duration $(DURATION) -figures $(CURDIR)/soak/faults.jsonl $(ARGS) || code=$$?; \
	go test ./internal/simulation -run '^TestSimulation$$' -count=1 -v -timeout 0 -args -gap 0 -within $(DURATION) -figures $(CURDIR)/soak/faults.jsonl $(ARGS) || code=$$?; \
	go test ./internal/history -run '^TestFaultsPage$$' -count=1 -args -page ../../docs/FAULTS.md -figures $(CURDIR)/soak/faults.jsonl || code=$$?; \
	go test ./integration/redisson -run '^TestInteropFaults$$' -count=1 -v -timeout $(TIMEOUT) -args -faults-page ../../docs/FAULTS.md || code=$$?; \
	exit $$code

quorum: ## locks on five nodes under random faults for 10 minutes, checked as histories; ARGS="-seed 1"
	@.ci/need redis-server cc
	go test ./integration/history -run '^TestHistory$$' -count=1 -v -timeout 2h -args -profile quorum -duration 10m -round 1m $(ARGS)

mutations: ## do the simulation and the histories find mistakes made on purpose? One after the other, a minute each at most; ARGS="-profile counted-twice" for one
	@.ci/need redis-server
	go test ./internal/simulation -run '^TestMutations$$' -count=1 -v -timeout 2h -args -mutations $(ARGS)
	go test ./integration/history -run '^TestMutations$$' -count=1 -v -timeout 2h -args -mutations $(ARGS)

long: ## the long forms of tests before one Redis: minutes of coming and going, every command often; a hundred simulated runs of three minutes
	@.ci/need redis-server redis-cli
	TESTS_LONG=1 go test ./cmd/lockproxy ./internal/session ./integration/dropin ./integration/faults ./integration/locks ./internal/simulation -count=1 -timeout 1h $(ARGS)

nodes: ## locks counted through failovers, resharding and faults of clusters and Sentinels: the long forms, with their figures
	@.ci/need redis-server
	TESTS_LONG=1 TESTS_FAILOVERS=12 go test ./integration/cluster ./integration/sentinel -count=1 -v -timeout 1h \
		-run 'ClusterLock|ClusterReshard|ClusterResets|Partition|BlackHole|UnderLoad|ClusterWait' $(ARGS)

# make test runs the same tests once the last version is there; to build it takes a minute, for which make test has no time.
upgrade: ## a proxy of the last version (the newest tag, or .ci/upgrade-from) beside one of this tree: builds it once, into the user's cache
	@.ci/need redis-server
	TESTS_UPGRADE=1 go test ./integration/stable -run '^TestUpgrade' -count=1 -v -timeout $(TIMEOUT)

page: ## the page for operators in Chromium; ARGS="-run TestPictures -args -pictures ../../docs/img" makes the screenshots
	@.ci/need chromium || { echo "page: *** Chromium is MISSING: the page for operators is NOT TESTED ***"; exit 1; }
	@.ci/need redis-server
	cd integration/page && go vet . && TESTS_LONG=1 go test . -count=1 -v -timeout 1h $(ARGS)

alerts: ## the alerts for Prometheus, and the names of metrics, by Prometheus' own promtool
	@.ci/need promtool
	go test ./internal/telemetry -run '^TestPromtool$$' -count=1 -v

packaging: ## what users install, built, checked by Helm, Kubernetes' types, lintian, hadolint, systemd, GoReleaser and others, installed and started; brings the tools
	.ci/packaging all

# Runs are counted, because Go sometimes takes the end of a time for a failure (golang/go#75804). Inputs that reach new code are not
# made smaller, because that took nearly all of the time: 1,390 runs in 10 s instead of 159,192.
fuzz: ## every fuzz target, FUZZRUNS (300000) times each, those with a client and its connections a tenth of that: a minute or two
	@set -e; for pkg in ./proto/resp ./internal/checked; do \
		targets=$$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$pkg/*_test.go); \
		if [ -z "$$targets" ]; then echo "no fuzz targets in $$pkg"; exit 1; fi; \
		for f in $$targets; do \
			runs=$(FUZZRUNS); if [ $$f = FuzzClient ]; then runs=$$((runs / 10)); fi; \
			echo "== $$f"; go test $$pkg -run '^$$' -fuzz "^$$f\$$" -fuzztime $${runs}x -fuzzminimizetime 1x; \
		done; done

fmt: ## gofmt everything
	find . -name '*.go' -not -path './.*' -print0 | xargs -0 gofmt -w

cover: ## coverage by function in cover.out, the total printed
	@.ci/need redis-server redis-cli
	go test -coverpkg=./... -coverprofile=cover.out -timeout $(TIMEOUT) ./...
	go tool cover -func=cover.out | tail -n 1

weight: ## tokens and lines of the product's code, by room; internal/arch/budget.txt bounds their sum
	@go test ./internal/arch -run '^TestBudget$$' -count=1 -v -args -rooms

dependencies: ## what each dependency costs in a cold build and in the program, two minutes
	go run ./deploy/weight

tidy-check: ## does go.mod name what the code uses?
	go mod tidy -diff
