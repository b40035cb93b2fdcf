package main

import (
	"context"
	"fmt"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/cloud"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

// nodeIPAMController is the name that upstream's has in kube-controller-manager.
const nodeIPAMController = "node-ipam-controller"

// runner is a controller of ours: it works until the context ends.
type runner interface{ Run(context.Context) error }

// controllers are upstream's node controllers and ours.
func (m *manager) controllers() map[string]app.ControllerInitFuncConstructor {
	upstream := app.DefaultInitFuncConstructors
	return map[string]app.ControllerInitFuncConstructor{
		names.CloudNodeController:          upstream[names.CloudNodeController],
		names.CloudNodeLifecycleController: upstream[names.CloudNodeLifecycleController],
		names.NodeRouteController:          m.constructor(names.NodeRouteController, m.routes),
	}
}

// build makes a controller, or nil if the configuration wants none.
type build func(*appconfig.CompletedConfig) (runner, error)

func (m *manager) constructor(name string, make build) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: name},
		Constructor: func(_ app.ControllerInitContext, c *appconfig.CompletedConfig, _ cloudprovider.Interface) app.InitFunc {
			return func(ctx context.Context, _ controllermanager.ControllerContext) (controller.Interface, bool, error) {
				r, err := make(c)
				if err != nil || r == nil {
					return nil, false, err
				}
				go func() {
					if err := r.Run(ctx); err != nil && ctx.Err() == nil {
						klog.FromContext(ctx).Error(err, "Controller stopped", "controller", name)
						klog.FlushAndExit(klog.ExitFlushTimeout, 1)
					}
				}()
				return nil, true, nil
			}
		},
	}
}

func (m *manager) routes(c *appconfig.CompletedConfig) (runner, error) {
	if !m.config.Routes.Enabled {
		return nil, nil
	}
	client, err := c.ClientBuilder.Client(names.NodeRouteController)
	if err != nil {
		return nil, fmt.Errorf("client of the route controller: %w", err)
	}
	return routecontroller.New(routecontroller.Config{
		Client:       client,
		Nodes:        c.SharedInformers.Core().V1().Nodes(),
		Table:        m.network,
		Gateways:     cloud.Gateways{Servers: m.servers},
		Ranges:       ranges(m.config),
		Limit:        m.config.Routes.Limit,
		Reserve:      m.config.Routes.Reserve,
		MaxDeletions: m.config.Routes.MaxDeletionsPercent,
		Period:       m.config.Routes.ReconciliationPeriod,
		Recorder:     c.EventRecorder,
		Registry:     registry{},
	})
}

// registry is where upstream's /metrics looks.
type registry struct{}

func (registry) Register(m metrics.Registerable) error { return legacyregistry.Register(m) }
