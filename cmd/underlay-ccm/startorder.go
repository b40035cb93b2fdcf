package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/controller-manager/pkg/leadermigration"
)

// headStart limits how long the other controllers of a new leader wait for node IPAM.
const headStart = 2 * time.Second

// ipamFirst makes all other controllers start after node IPAM, and after await. Upstream starts
// them in random order, and most of them begin with all Nodes, which in a large cluster takes all
// processors for a second.
func ipamFirst(
	all map[string]app.ControllerInitFuncConstructor,
	await func(context.Context, *appconfig.CompletedConfig),
) {
	ipam := all[nodeIPAMController]
	var once sync.Once
	var started bool
	var err error
	for name, its := range all {
		construct := its.Constructor
		its.Constructor = func(
			i app.ControllerInitContext, c *appconfig.CompletedConfig, provider cloudprovider.Interface,
		) app.InitFunc {
			start := construct(i, c, provider)
			// With leader migration another lock, or another program, may decide who runs node IPAM.
			if !enabled(c, nodeIPAMController) || leadermigration.Enabled(&c.ComponentConfig.Generic) {
				return start
			}
			return func(
				ctx context.Context, cc controllermanager.ControllerContext,
			) (controller.Interface, bool, error) {
				once.Do(func() {
					_, started, err = ipam.Constructor(ipam.InitContext, c, provider)(ctx, cc)
					if err != nil {
						err = fmt.Errorf("%s: %w", nodeIPAMController, err)
						return
					}
					await(ctx, c)
				})
				if err != nil || name == nodeIPAMController {
					return nil, started, err
				}
				return start(ctx, cc)
			}
		}
		all[name] = its
	}
}

// awaitIPAM waits until node IPAM has served the Nodes that waited, if it runs.
func (m *manager) awaitIPAM(ctx context.Context, c *appconfig.CompletedConfig) {
	ipam := m.ipamController.Load()
	if ipam == nil {
		return
	}
	c.SharedInformers.Start(wait.NeverStop) // as upstream does when all controllers are started
	select {
	case <-ipam.Idle():
	case <-time.After(headStart):
	case <-ctx.Done():
	}
}
