// Command underlay-ccm is the cloud controller manager: upstream's application with upstream's
// node controllers, and Underlay's controllers for node IPAM, routes, load balancers, addresses,
// the directory of Nodes and the vSwitch. This package checks what only the process that leads can
// check, and wires flags and configuration to constructors.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/robot"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

const long = `underlay-ccm is the cloud controller manager of Underlay: it initializes the
Nodes of a cluster on rented machines, allocates their podCIDRs, writes the
routes of the cloud's network within its limit, and manages load balancers.

Flags are upstream's where upstream has them. All other settings are in the file
of --cloud-config and in HCLOUD_* variables; a flag overrides the file, the file
overrides the environment.`

func main() {
	command, err := newCommand(genericapiserver.SetupSignalContext())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := cli.RunNoErrOutput(command); err != nil {
		if !errors.As(err, &printed{}) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func newCommand(ctx context.Context) (*cobra.Command, error) {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("preparing the options: %w", err)
	}
	opts.KubeCloudShared.CloudProvider.Name = "hcloud"
	opts.KubeCloudShared.RouteReconciliationPeriod.Duration = time.Minute
	opts.ServiceController.ConcurrentServiceSyncs = 4

	var flags cliflag.NamedFlagSets // of node IPAM, which upstream has in another program
	fs := flags.FlagSet(nodeIPAMController)
	fs.String("service-cluster-ip-range", "",
		"The cluster's Service ranges, one or one of each family. No podCIDR overlaps them.")
	fs.Int("node-cidr-mask-size", 0, "Prefix length of a Node's podCIDR in a single-stack cluster. Default is 24 for IPv4 and 64 for IPv6.")
	fs.Int("node-cidr-mask-size-ipv4", 0,
		"Prefix length of a Node's IPv4 podCIDR in a dual-stack cluster. Default is 24.")
	fs.Int("node-cidr-mask-size-ipv6", 0,
		"Prefix length of a Node's IPv6 podCIDR in a dual-stack cluster. Default is 64.")

	m := &manager{ctx: ctx}
	cmd := app.NewCloudControllerManagerCommand(opts, m.start, m.controllers(), aliases(), flags,
		ctx.Done())
	cmd.Use = "underlay-ccm"
	cmd.Long = long
	cmd.SilenceUsage = true
	cmd.RunE = m.run(opts, cmd.RunE)
	return cmd, nil
}

func aliases() map[string]string {
	all := names.CCMControllerAliases()
	all["nodeipam"] = nodeIPAMController
	return all
}

// manager holds the results of start-up for the controllers' constructors.
type manager struct {
	ctx     context.Context
	config  config.Config
	client  *hetzner.Client  // nil without a cloud
	network *hetzner.Network // nil: none configured
	// layout is the network as read at start or by the new leader, for constructors; nil: none
	// configured. What must follow later changes of the network uses network.Last.
	layout   *hetzner.NetworkDetails
	machines cloud.Machines // every machine that a Node may run on
	// account lists the dedicated servers of the account at Robot; nil without Robot.
	account *robot.Servers
	robot   *robot.Client // nil without Robot
	offered bool          // the load balancer settings match the cloud's offer

	gate  leadership.Gate                  // of requests to the API server and the cloud
	lease atomic.Pointer[leadership.Lease] // nil until this replica leads
	plain kubernetes.Interface             // bypasses the gate

	routeState     routecontroller.State // which node IPAM reads
	ipamController atomic.Pointer[ipamcontroller.Controller]

	once sync.Once // guards lead
}

func (m *manager) configure(flags config.Flags) error {
	loaded, warnings, err := config.Load(flags, nil, os.Getenv, os.ReadFile)
	warnings = append(warnings, config.UnknownVariables(os.Environ())...)
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	if err != nil {
		return err
	}
	m.config = loaded
	if loaded.Provider == config.Metal {
		return nil
	}
	m.client, err = hetzner.New(hetzner.Options{
		Endpoint: loaded.Endpoint,
		Token: func() (string, error) {
			token, err := loaded.Token.Read()
			return token.Reveal(), err
		},
		Version:   version.Get().GitVersion,
		Registry:  registry{},
		Transport: m.gate.Wrap(requests.NewTransport()),
	})
	if err != nil {
		return err
	}
	return m.configureDedicated(nil, registry{})
}

// giveDeadlines adds a timeout to all requests, and recreates the clients that upstream has
// already created. With separate credentials per controller, upstream has no hook for this.
func giveDeadlines(c *appconfig.CompletedConfig) {
	c.Kubeconfig.Wrap(kube.WithDeadline)
	of := func(name string) *kubernetes.Clientset {
		return kubernetes.NewForConfigOrDie(rest.AddUserAgent(rest.CopyConfig(c.Kubeconfig), name))
	}
	c.Client, c.VersionedClient = of("cloud-controller-manager"), of("shared-informers")
	c.SharedInformers = informers.NewSharedInformerFactory(c.VersionedClient, app.ResyncPeriod(c)())
}

// start is upstream's hook between configuration and controllers. It returns once the cloud
// matches the configuration. It can't return an error, so a permanent error exits the process.
func (m *manager) start(c *appconfig.CompletedConfig) cloudprovider.Interface {
	giveDeadlines(c)
	m.plain = c.Client
	c.Kubeconfig.Wrap(m.gate.Wrap) // for all clients created later
	provider, err := m.connect(m.ctx, c)
	if m.ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "stopped while waiting for the cloud")
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.warm(c)
	return provider
}
