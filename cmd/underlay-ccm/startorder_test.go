package main

import (
	"context"
	"errors"
	"slices"
	"testing"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
)

// Whichever controller upstream starts first, node IPAM starts before it, once, and the others wait
// for it.
func TestNodeIPAMStartsFirst(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		name        string
		controllers []string
		err         error
		order, want []string
	}{
		{"last", []string{"*"}, nil, []string{"a", "b", nodeIPAMController}, []string{nodeIPAMController, "served", "a", "b"}},
		{"between", []string{"*"}, nil, []string{"a", nodeIPAMController, "b"}, []string{nodeIPAMController, "served", "a", "b"}},
		{"first", []string{"*"}, nil, []string{nodeIPAMController, "a", "b"}, []string{nodeIPAMController, "served", "a", "b"}},
		{"disabled", []string{"*", "-" + nodeIPAMController}, nil, []string{"a", "b"}, []string{"a", "b"}},
		{"it fails", []string{"*"}, refused, []string{"a"}, []string{nodeIPAMController}},
		{"leader migration", []string{"*"}, nil, []string{"a", "b"}, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			all := map[string]app.ControllerInitFuncConstructor{}
			for _, name := range []string{"a", "b", nodeIPAMController} {
				all[name] = app.ControllerInitFuncConstructor{Constructor: func(
					app.ControllerInitContext, *appconfig.CompletedConfig, cloudprovider.Interface,
				) app.InitFunc {
					return func(
						context.Context, controllermanager.ControllerContext,
					) (controller.Interface, bool, error) {
						got = append(got, name)
						return nil, true, c.err
					}
				}}
			}
			ipamFirst(all, func(context.Context, *appconfig.CompletedConfig) { got = append(got, "served") })
			var config appconfig.Config
			config.ComponentConfig.Generic.Controllers = c.controllers
			if c.name == "leader migration" {
				config.ComponentConfig.Generic.LeaderMigrationEnabled = true
				config.ComponentConfig.Generic.LeaderElection.LeaderElect = true
			}
			inits := app.ConstructControllerInitializers(all, config.Complete(), nil)
			for _, name := range c.order {
				_, started, err := inits[name](t.Context(), controllermanager.ControllerContext{})
				if !started || !errors.Is(err, c.err) {
					t.Errorf("%s: started %t, %v", name, started, err)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("started %v, want %v", got, c.want)
			}
		})
	}
}
