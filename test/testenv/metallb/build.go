package metallb

import (
	"context"
	"fmt"
	"io"

	"github.com/underlay-ccm/underlay/test/testenv/module"
)

// MetalLB is a built MetalLB. Its manifest, the one of MetalLB's documentation, contains everything
// except the pools.
type MetalLB struct{ module.Built }

func release() module.Module {
	const path = "go.universe.tf/metallb"
	return module.Module{
		Name: "metallb", Title: "MetalLB", Requirer: "metallb", Path: path,
		Manifest: "config/manifests/metallb-native.yaml", Takes: "2 minutes",
		Salt: fmt.Sprintf(" %q %q", lackingField, lackingType),
		Arguments: func(ctx context.Context, b module.Built, folder string) ([]string, error) {
			mod, err := withFRR(ctx, b, folder)
			return []string{"-modfile=" + mod, "-ldflags", "-s -w", path + "/controller", path + "/speaker"}, err
		},
	}
}

// Built returns MetalLB if Build has built it before, and reports whether it has.
func Built() (MetalLB, bool, error) {
	b, is, err := release().Built()
	return MetalLB{b}, is, err
}

// Build returns MetalLB, and builds it first if it is missing: that takes some minutes and is
// reported on progress.
func Build(ctx context.Context, progress io.Writer) (MetalLB, error) {
	b, err := release().Build(ctx, progress)
	return MetalLB{b}, err
}
