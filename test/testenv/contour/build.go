package contour

import (
	"context"
	"io"

	"github.com/underlay-ccm/underlay/test/testenv/module"
)

// Contour is a built Contour. Its manifest, the one of Contour's documentation, installs the
// gateway provisioner with its custom resource definitions, including the Gateway API's.
type Contour struct{ module.Built }

// Program is the path of the program contour.
func (c Contour) Program() string { return c.Built.Program("contour") }

func release() module.Module {
	const path = "github.com/projectcontour/contour"
	return module.Module{
		Name: "contour", Title: "Contour", Requirer: "gatewayapi", Path: path,
		Manifest: "examples/render/contour-gateway-provisioner.yaml", Takes: "3 minutes",
		Arguments: func(_ context.Context, b module.Built, _ string) ([]string, error) {
			return []string{"-ldflags", "-s -w -X " + path + "/internal/build.Version=" + b.Version, path + "/cmd/contour"}, nil
		},
	}
}

// Built returns Contour if Build has built it before, and reports whether it has.
func Built() (Contour, bool, error) {
	b, is, err := release().Built()
	return Contour{b}, is, err
}

// Build returns Contour, and builds it first if it is missing: that takes some minutes and is
// reported on progress.
func Build(ctx context.Context, progress io.Writer) (Contour, error) {
	b, err := release().Build(ctx, progress)
	return Contour{b}, err
}
