# Requires only Go; `make test` also uses a C compiler if there is one.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

STEP := .ci/step

# Kubernetes' libraries require a semantic version.
VERSION := $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo "v0.0.0-g$$(git describe --always --dirty 2>/dev/null || echo unknown)")
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The commit's date, not today's: the same commit gives the same binary.
DATE    := $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
STAMP   := k8s.io/component-base/version
LDFLAGS := -s -w -X $(STAMP).gitVersion=$(VERSION) -X $(STAMP).gitCommit=$(COMMIT) -X $(STAMP).buildDate=$(DATE)

# Without the unused pages of traces: their templates keep the linker from dropping unused code,
# 30 MB of each program with gRPC.
TAGS := -tags grpcnotrace

# The race detector requires a C compiler.
RACE := $(shell cc=$$(go env CC); command -v "$${cc%% *}" >/dev/null && echo -race)
TEST := $(if $(RACE),CGO_ENABLED=1 )go test $(RACE) -vet=off -timeout 40m
# The heaps of pure tests are small, so fewer collections cost little memory.
SMALL := GOGC=400

# The simulated clouds of whole-cluster tests behave as the measured one.
ifdef PROFILE
export UNDERLAY_PROFILE := $(or $(realpath $(PROFILE)),$(error PROFILE=$(PROFILE): there is no such file; hcloud-sim measure --profile writes one))
ifeq ($(MAKELEVEL),0)
$(info the simulated clouds behave as measured: $(UNDERLAY_PROFILE))
endif
endif

# The plugins that the agent's CNI configuration names, for the tests that run them.
CNI_VERSION := v1.9.1
export CNI_PATH ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/underlay/cni-$(CNI_VERSION)

# Shows the progress. The demo's programs are built with the same flags as the control plane, so
# that nothing is compiled twice.
COMPILE := env CGO_ENABLED=0 go run -trimpath ./test/testenv/gobuild/build

.PHONY: build
build: ## static binaries of every program, in ./bin
	CGO_ENABLED=0 go build -trimpath $(TAGS) -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...
	@for program in cmd/*/; do ls -lh "bin/$$(basename "$$program")"; done | awk '{print $$5, $$9}'

.PHONY: demo
demo: $(if $(KUBEADM),machines,kube) ## a cluster on the simulated cloud, to watch; as root with packets; ONCE=1 exits at the end; KUBEADM=1 installs it on machines
ifdef KUBEADM
	@$(STEP) "program of the demo" $(COMPILE) build -trimpath -ldflags '-s -w' -o bin/demo-machines ./test/demo/machines
	@bin/demo-machines $(if $(ONCE),-once)
else
	@[ "$$(id -u)" != 0 ] || $(MAKE) --no-print-directory cni
	@$(STEP) "programs of the demo" $(COMPILE) build -trimpath $(TAGS) -ldflags '-s -w' -o bin/ ./cmd/underlay-ccm ./cmd/underlay-agent ./cmd/underlayctl ./test/demo golang.zx2c4.com/wireguard
	@bin/demo $(if $(ONCE),-once)
endif

# Every control plane of the tests records the requests of our accounts in a fresh folder, for
# the last step. After a failure the folder is kept.
.PHONY: test
test: skipped check machines kubeadm ## everything: check, unit and integration tests; with the race detector if there is a C compiler; PROFILE=FILE names the profile of a measured cloud
	@$(if $(RACE),,echo; echo "== no C compiler ($$(go env CC)): tests run WITHOUT the race detector")
	@records=$$(mktemp -d); UNDERLAY_AUDIT_DIR="$$records" $(MAKE) --no-print-directory recorded; rm -rf "$$records"

.PHONY: skipped
skipped:
	@.ci/skipped

# Tests that depend on real time get both cores, step by step, because a starved test fails. Only
# schedules, whose time is virtual, run beside integration tests, at low priority. The other steps
# run after a failed one too.
.PHONY: recorded
recorded:
	@status=0; \
	for steps in unit "-j2 integration schedules" packets installed counts performance chart alerts permissions; do \
		$(MAKE) --no-print-directory --keep-going $$steps || status=1; \
	done; exit $$status

.PHONY: permissions
permissions:
	@$(STEP) "permissions, compared with the tests' requests" go run ./test/checks/permissions "$$UNDERLAY_AUDIT_DIR"

.PHONY: unit
unit: ## only unit tests, without random schedules
	@$(STEP) "unit tests$(if $(RACE), with the race detector)" env $(SMALL) $(TEST) $$(go list ./... | grep -v -e '/underlay/test/' -e '/bgp/speaker' | grep -vxFf <(go list $(SCHEDULES)))

# All random schedules and models run without the race detector, which is eight times slower, and
# an eighth of them with it.
SCHEDULES := ./ipam/... ./lb/controller ./test/schedule
.PHONY: schedules
schedules: ## only random schedules and models
	@$(STEP) "random schedules and models$(if $(RACE), with the race detector)" nice -n 19 env $(SMALL) $(TEST) $(SCHEDULES)
	@$(if $(RACE),$(STEP) "random schedules and models in full" nice -n 19 env $(SMALL) go test -vet=off -timeout 40m $(SCHEDULES))

.PHONY: e2e
e2e: machines ## only the integration tests: a real control plane, the simulated cloud
	@$(MAKE) --no-print-directory integration packets installed counts

# Three packages at a time, the longest first, and two parallel tests of each: each starts its own
# control planes, on its own ports and in its own networks.
.PHONY: integration
integration:
	@$(STEP) "integration tests$(if $(RACE), with the race detector)" env $(TEST) -p 3 -parallel 2 ./test/e2e $$(go list ./test/... | grep -v -e '/test/e2e/packets' -e '/test/bench' -e '/test/schedule' -e '/test/e2e/kubeadm' -e '/test/e2e/gatewayapi')

# They count lost packets, and nodes probe each other with timeouts: on busy processors some packets
# are lost or late. The tested programs have no race detector anyway; it would only slow the
# counting clients.
.PHONY: packets
packets:
	@$(STEP) "packets" go test -vet=off -timeout 40m ./test/e2e/packets
	@$(STEP) "BGP speakers$(if $(RACE), with the race detector)" env $(TEST) ./addresses/bgp/speaker

# Alone: three machines' kubelets and a control plane use both cores.
.PHONY: installed
installed:
	@$(STEP) "clusters that kubeadm installs" env $(TEST) ./test/e2e/kubeadm

# For upgrades of clusters. Slow to build, so not part of the tests.
HELM_VERSION := v4.3.1
export UNDERLAY_HELM ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/underlay/helm-$(HELM_VERSION)/helm
.PHONY: helm
helm:
	@[ -x "$(UNDERLAY_HELM)" ] || $(STEP) "helm" env GOBIN="$(dir $(UNDERLAY_HELM))" $(COMPILE) install -trimpath -ldflags '-s -w' helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)

.PHONY: kubeadm-ha
kubeadm-ha: machines helm ## three control planes, upgrades, reboots and removal of clusters, on machines; requires root and hcloud; FROM=v0.1.0 names the version to upgrade
	@$(STEP) "several control planes, upgrades, removal" env UNDERLAY_FROM='$(FROM)' go test -vet=off -count=1 -timeout 60m -v ./test/e2e/kubeadm/ha

# Two hours, so not part of the tests.
.PHONY: conformance
conformance: machines ## upstream's specs of the network on clusters on machines; writes docs/reference/conformance.md; SETUP= and FOCUS= select, LOGS= names a folder for their logs
	@$(STEP) "program that runs the specs" $(COMPILE) build -trimpath -ldflags '-s -w' -o bin/conformance ./test/conformance/kubernetes
	@bin/conformance -setup '$(SETUP)' -focus '$(FOCUS)' -logs '$(LOGS)'

.PHONY: clients
clients: ## the commands of the installed program hcloud (Debian's hcloud-cli) on the simulated cloud
	@$(STEP) "clients" go test -vet=off -count=1 -v ./test/clients

# Contour is slow to build, so not part of the tests.
.PHONY: gateway-api
gateway-api: kube ## a Gateway of the Gateway API gets a load balancer, by Contour, which the first run builds
	@$(STEP) "contour" env CGO_ENABLED=0 go run -trimpath ./test/testenv/contour/build
	@$(STEP) "Gateway API" go test -vet=off -count=1 -timeout 20m -v ./test/e2e/gatewayapi

# Without the race detector, which would be measured too, and without a profile, which changes the
# counts.
.PHONY: counts
counts:
	@$(STEP) "request counts and schedules" env -u UNDERLAY_PROFILE go test -vet=off -timeout 40m -p 1 ./test/bench/...

.PHONY: bench
bench: ## every benchmark, once
	@packages=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r dirname | sort -u); \
	if [ -z "$$packages" ]; then echo "no package has a benchmark"; else go test -run '^$$' -bench . -benchmem $$packages; fi

# Millions of states take half an hour and some gigabytes, so the tests explore fewer.
.PHONY: explore
explore: ## interleavings of the stored ledger's writes, many more than in the tests; STATES= and WALKS= set the number in each scope
	@go test ./ipam -run '^TestExplore' -count=1 -v -timeout 3h -explore-states $(or $(STATES),1000000) -explore-walks $(or $(WALKS),20000)

# Nothing else should run on the machine. Each subject has its own target below.
.PHONY: bench-all
bench-all: ## all comparisons with other programs, about an hour, as root; writes docs/reference/performance.md and README's figures; ONLY=ipam,agent selects
	@$(STEP) "program that writes the report" go build -C test/bench/report -o "$(CURDIR)/bin/bench-report" .
	@bin/bench-report -only '$(ONLY)'

.PHONY: bench-ipam
bench-ipam: kube ## node IPAM: 5,000 Nodes, compared with kube-controller-manager's and a raw loop
	@go test ./test/bench/ipam -run '^$$' -bench . -benchtime 1x -timeout 35m

.PHONY: bench-routes
bench-routes: ## routes: joining and idle nodes, compared with upstream's controller
	@go test ./test/bench/routes -run 'Compared|OneNode|AHundred|AnHour' -count=1 -v 2>&1 | grep -v '^[IWE][0-9]\{4\} '

.PHONY: bench-lb
bench-lb: ## requests of load balancers, compared with the Hetzner CCM's
	@go test ./test/bench/lb -count=1 -v -run 'Requests|Resync' -bench Resync -benchmem -benchtime 5x

.PHONY: bench-scale
bench-scale: kube ## the manager among 15,000 Nodes: start, memory, joins, changes of leader, ten minutes of replacement under faults; half an hour
	@go test ./test/bench/scale -run '^$$' -bench . -benchtime 1x -timeout 60m

.PHONY: bench-agent
bench-agent: kube cni ## the agent among 15,000 Nodes, compared with ip -batch and a socket per route; tunnels with plain routes; requires root
	@go test ./test/bench/agent -run '^$$' -bench . -timeout 20m

# The first run builds MetalLB, which `make bench` does not.
.PHONY: bench-address
bench-address: kube cni ## addresses on one segment under faults, compared with MetalLB's; ROUNDS= sets the repetitions; a quarter of an hour, requires root
	@$(STEP) "metallb" env CGO_ENABLED=0 go run -trimpath ./test/testenv/metallb/build
	@go test ./test/bench/address -run '^$$' -bench . -benchtime 1x -timeout 60m -rounds $(or $(ROUNDS),3)

# The first run builds kube-router, which requires iptables and ipset.
.PHONY: bench-policy
bench-policy: ## NetworkPolicies: a pod's start, memory, new connections, compared with kube-router's firewall; requires root
	@$(STEP) "kube-router" env CGO_ENABLED=0 go run -trimpath ./test/testenv/kuberouter/build
	@go test ./test/bench/policy -run '^$$' -bench . -benchtime 5x -timeout 60m

.PHONY: address-moves
address-moves: kube cni ## run the commands of the how-to for moving from MetalLB, while clients use the addresses; two minutes, requires root
	@$(STEP) "metallb" env CGO_ENABLED=0 go run -trimpath ./test/testenv/metallb/build
	@go test ./test/bench/address -run '^$$' -bench Move -benchtime 1x -timeout 20m -rounds 1

# Each mutant is compiled and tested separately: minutes, so not part of the tests.
.PHONY: mutants
mutants: ## break one guard of the code at a time; a test must fail for each; ONLY='a regular expression' selects
	@go run ./test/checks/mutants $(if $(ONLY),-only '$(ONLY)')

.PHONY: check
check: ## go vet, staticcheck and gofumpt; changes nothing
	@$(STEP) "go vet" go vet ./...
	@$(STEP) "staticcheck" go tool staticcheck ./...
	@$(STEP) "gofumpt" $(SHELL) -c 'unformatted=$$(go tool gofumpt -l .); [ -z "$$unformatted" ] || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }'

# Slow to build, so not part of the tests.
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/underlay/golangci-$(GOLANGCI_VERSION)
.PHONY: lint
lint: check ## the same and golangci-lint, which the first run builds in some minutes
	@[ -x "$(GOLANGCI)/golangci-lint" ] || $(STEP) "golangci-lint's binary" env GOBIN="$(GOLANGCI)" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@$(STEP) "golangci-lint" "$(GOLANGCI)/golangci-lint" run ./...

.PHONY: fmt
fmt: ## format every file
	go tool gofumpt -w .

.PHONY: generate
generate: ## regenerate docs/reference and the pictures of the packages and of the demo from the code
	go test ./test/demo/recording ./internal/config ./hcloudsim ./internal/doctor ./lb ./test/checks/docs ./test/checks/archtest ./test/checks/kubeadm ./test/conformance/kubernetes -run TestDocument -count=1 -update
	go test -C test/bench/report -run TestDocument -count=1 . -update

.PHONY: manifests
manifests: ## render deploy/ccm, deploy/agent and deploy/metal from deploy/chart
	go test -C test/checks/chart -vet=off -count=1 -run TestRendered . -update

# A separate module, because of the plot library. Not cached: the compared files are outside of it.
.PHONY: performance
performance:
	@$(STEP) "the page of measured figures" go test -C test/bench/report -vet=off -count=1 .

# A separate module, whose first build takes minutes. Not cached: the chart is outside of it.
.PHONY: chart
chart: ## the chart through Helm's own engine: values, mistakes, drift
	@$(STEP) "chart" go test -C test/checks/chart -count=1 .

# A separate module with Prometheus, whose first build takes minutes too.
.PHONY: alerts
alerts: ## the alerts and the dashboards' queries on Prometheus' engine
	@$(STEP) "alerts" go test -C test/checks/alerts -count=1 .

# Before the tests, because go test shows no progress of the first build, which takes minutes.
.PHONY: kube
kube:
	@$(STEP) "control plane's binary" env CGO_ENABLED=0 go run -trimpath ./test/testenv/kubebinary/build

.PHONY: cni
cni:
	@[ -x "$(CNI_PATH)/portmap" ] || $(STEP) "CNI plugins" env GOBIN="$(CNI_PATH)" $(COMPILE) install -trimpath $(foreach p,main/ptp ipam/host-local meta/portmap,github.com/containernetworking/plugins/plugins/$(p)@$(CNI_VERSION))

# Programs of machines, for tests that install clusters; reports missing requirements.
.PHONY: machines
machines: kube cni
	@$(STEP) "machines' programs" env CGO_ENABLED=0 go run -trimpath ./test/testenv/machine/build

# Built with the flags of the binary, so that most of it is compiled already.
.PHONY: kubeadm
kubeadm: kube
	@$(STEP) "kubeadm examples" env -C test/kube GOWORK=off CGO_ENABLED=0 go test -trimpath -buildvcs=false -vet=off ./kubeadm

.PHONY: release
release: ## static binaries for amd64 and arm64 and the chart with checksums, in ./dist; RELEASE=v0.1.0 names the version
	@.ci/release $(RELEASE)

.PHONY: clean
clean: ## remove ./bin and ./dist; keeps the control plane's binary in ~/.cache/underlay
	rm -rf bin dist

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
