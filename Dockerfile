# Images of Underlay, one target each:
#
#   docker build --target ccm --build-arg VERSION=v0.1.0 --tag …/underlay-ccm:v0.1.0 .
#   docker build --target agent --build-arg VERSION=v0.1.0 --tag …/underlay-agent:v0.1.0 .
#   docker build --target hcloud-sim --tag …/hcloud-sim .
#
# They contain a static program, and for the controller manager the certificate
# authorities of the cloud's certificate: no shell, no package manager, only the user
# 65532. The agent's image differs: it calls nft, which needs its libraries.
#
# Every base is pinned by the digest of its index, which covers all platforms; the tag
# is only documentation. ".ci/bases" updates the digests from the registry.

FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly

COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG TARGETOS
ARG TARGETARCH
# Shown by --version, the metric kubernetes_build_info and the cloud's access log.
ARG VERSION=v0.0.0-unreleased
ARG COMMIT=unknown
ARG TREE_STATE=unknown
ARG BUILD_DATE=1970-01-01T00:00:00Z
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags grpcnotrace -o /out/ \
    -ldflags "-s -w \
      -X k8s.io/component-base/version.gitVersion=$VERSION \
      -X k8s.io/component-base/version.gitCommit=$COMMIT \
      -X k8s.io/component-base/version.gitTreeState=$TREE_STATE \
      -X k8s.io/component-base/version.buildDate=$BUILD_DATE" \
    ./cmd/underlay-ccm ./cmd/underlay-agent ./cmd/hcloud-sim

# The plugins that the agent's CNI configuration names, with the library versions of
# their own module. They are installed on machines only with the chart's
# agent.installPlugins.
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS plugins
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local CNI=github.com/containernetworking/plugins/plugins
ARG TARGETOS
ARG TARGETARCH
ARG CNI_VERSION=v1.9.1
RUN go mod init plugins && \
    go get $CNI/main/ptp@$CNI_VERSION $CNI/ipam/host-local@$CNI_VERSION $CNI/meta/portmap@$CNI_VERSION && \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -o /out/ -ldflags "-s -w" \
    $CNI/main/ptp $CNI/ipam/host-local $CNI/meta/portmap

FROM scratch AS hcloud-sim
COPY --from=build /out/hcloud-sim /hcloud-sim
USER 65532:65532
EXPOSE 8470
# The API is for other containers; the admin listener stays on loopback.
ENTRYPOINT ["/hcloud-sim", "--listen=:8470"]

FROM scratch AS ccm
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/underlay-ccm /underlay-ccm
USER 65532:65532
EXPOSE 10258
ENTRYPOINT ["/underlay-ccm"]

# Debian 12 for its nftables 1.0.6, with which the tests run. An older nft on the
# machine may not show tables of a newer one.
FROM debian:12-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171 AS agent
RUN apt-get update && \
    apt-get install --yes --no-install-recommends nftables && \
    rm -rf /var/lib/apt/lists/*
COPY --from=plugins /out/ptp /out/host-local /out/portmap /opt/cni/bin/
COPY --from=build /out/underlay-agent /underlay-agent
# Root, because root owns the files that it writes; NET_ADMIN is the only capability.
USER 0:0
EXPOSE 10266
ENTRYPOINT ["/underlay-agent"]
