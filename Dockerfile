# Images of Underlay, one target each:
#
#   docker build --target ccm --build-arg VERSION=v0.1.0 --tag …/underlay-ccm:v0.1.0 .
#   docker build --target hcloud-sim --tag …/hcloud-sim .
#
# They hold a static program, and for the controller manager the certificate
# authorities that it checks the cloud's certificate against: no shell, no
# package manager, no user but 65532.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly

COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG TARGETOS
ARG TARGETARCH
# What --version, the metric kubernetes_build_info and the cloud's access log say.
ARG VERSION=v0.0.0-unreleased
ARG COMMIT=unknown
ARG TREE_STATE=unknown
ARG BUILD_DATE=1970-01-01T00:00:00Z
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -o /out/ \
    -ldflags "-s -w \
      -X k8s.io/component-base/version.gitVersion=$VERSION \
      -X k8s.io/component-base/version.gitCommit=$COMMIT \
      -X k8s.io/component-base/version.gitTreeState=$TREE_STATE \
      -X k8s.io/component-base/version.buildDate=$BUILD_DATE" \
    ./cmd/underlay-ccm ./cmd/hcloud-sim

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
