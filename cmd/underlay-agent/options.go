//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/secret"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/wireguard"
)

type options struct {
	// Machine flags.
	cniConfDir, stateDir, sysctls string
	keyDir                        string
	cniBinDirs                    []string

	// Cluster flags.
	config, clusterCIDR   string
	nodeName              string
	kubeconfig, apiServer string
	uplinks               []string
	networkGateway        string
	filterInbound         bool
	allowInbound          []netip.Prefix

	// Service flags.
	bindAddress string
	port        int
	period      time.Duration
}

func defaults() *options {
	return &options{
		cniConfDir: "/etc/cni/net.d", cniBinDirs: []string{"/opt/cni/bin"}, stateDir: "/run/underlay",
		sysctls:  "/proc/sys",
		keyDir:   "/var/lib/underlay",
		nodeName: os.Getenv("NODE_NAME"), filterInbound: true,
		bindAddress: "127.0.0.1", port: 10266, period: time.Minute,
	}
}

func (o *options) machineFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.cniConfDir, "cni-conf-dir", o.cniConfDir, "Folder of the CNI configuration.")
	fs.StringSliceVar(&o.cniBinDirs, "cni-bin-dir", o.cniBinDirs,
		"Folder of the CNI plugins; may be given several times.")
	fs.StringVar(&o.stateDir, "state-dir", o.stateDir, "Folder for state that has to outlive this program, but not the machine's next start, at the same path as on the host: a link in --cni-conf-dir leads into it.")
	fs.StringVar(&o.keyDir, "key-dir", o.keyDir, "Folder of this machine's WireGuard key, which has to outlive the machine's next start. Only root can read the key.")
	fs.StringVar(&o.sysctls, "sysctls", o.sysctls,
		"Folder where the kernel's settings can be written.")
}

func (o *options) clusterFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.config, "config", o.config,
		"The configuration file, the one of the cloud controller manager's --cloud-config.")
	fs.StringVar(&o.clusterCIDR, "cluster-cidr", o.clusterCIDR,
		"As given to the cloud controller manager; unused where the file has pools.")
	fs.StringVar(&o.nodeName, "node-name", o.nodeName,
		"Name of this machine's Node. Default: the variable NODE_NAME.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"Kubeconfig file. Without it: the ServiceAccount of the pod, and --api-server.")
	fs.StringVar(&o.apiServer, "api-server", o.apiServer, "URL of the API server, such as https://10.0.0.2:6443. Never its ClusterIP: that may depend on this program. Takes precedence over the kubeconfig's.")
	fs.StringArrayVar(&o.uplinks, "uplink", o.uplinks, "Interface over which nodes talk to each other; may be given several times. Default: those with the Node's InternalIPs.")
	fs.StringVar(&o.networkGateway, "network-gateway", o.networkGateway,
		"The cloud network's gateway. Default: that of this machine's route to the network.")
	fs.BoolVar(&o.filterInbound, "filter-inbound", o.filterInbound,
		"Keep the outside from opening connections to pods.")
	fs.Func("allow-inbound", "Network (`prefix`) outside the cluster from which connections to pods may be opened, such as an office's behind a VPN gateway; may be given several times.", func(text string) error {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return errors.New("is no network with its length; give one such as 192.0.2.0/24")
		}
		o.allowInbound = append(o.allowInbound, p)
		return nil
	})
}

func (o *options) serviceFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.bindAddress, "bind-address", o.bindAddress,
		"Address of /healthz, /readyz and /metrics, which are open to every client that reaches it.")
	fs.IntVar(&o.port, "port", o.port, "Port of /healthz, /readyz and /metrics.")
	fs.DurationVar(&o.period, "sync-period", o.period,
		"Interval of full reconciliations that no event has caused.")
}

// settings are the validated options of the cluster.
type settings struct {
	agent.Settings
	client        *kubernetes.Clientset
	addresses     config.Addresses
	networkPolicy bool        // whether NetworkPolicies are enforced
	policyLog     uint16      // nflog group of dropped packets; 0 is none
	preshared     secret.Text // of all tunnels
}

// settle validates all options and returns all mistakes at once.
func (o *options) settle() (settings, error) {
	s := settings{Settings: agent.Settings{Self: o.nodeName, Uplinks: o.uplinks}}
	var wrong []error
	if o.nodeName == "" {
		wrong = append(wrong, errors.New("--node-name: this machine's Node has no name; give it, or set the variable NODE_NAME to it"))
	}
	if o.kubeconfig == "" && o.apiServer == "" {
		wrong = append(wrong, errors.New("--api-server: no API server is given; give its URL, such as https://10.0.0.2:6443, or --kubeconfig"))
	}
	wrong = append(wrong, o.places()...)
	api, err := o.restConfig()
	if err != nil {
		wrong = append(wrong, err)
	}
	if o.period < time.Second {
		wrong = append(wrong, fmt.Errorf("--sync-period %s: is less than a second; the default is 1m0s",
			o.period))
	}
	if o.networkGateway != "" {
		addr, err := netip.ParseAddr(o.networkGateway)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--network-gateway %q: is no IP address; leave the flag out, or give the network's first address", o.networkGateway))
		}
		s.Gateway = addr
	}
	loaded, err := config.LoadAgent(o.config, o.clusterCIDR, os.ReadFile)
	if err != nil {
		return s, errors.Join(append(wrong, err)...)
	}
	s.addresses = loaded.Addresses
	s.networkPolicy, s.policyLog = loaded.NetworkPolicy, loaded.NetworkPolicyLog
	wrong = append(wrong, passwords(s.addresses.BGP)...)
	if api != nil {
		wrong = append(wrong, s.addresses.CheckServer(api.Host))
	}
	s.Untrusting = loaded.Provider == config.Metal
	for _, m := range loaded.Inventory {
		s.Inventory = append(s.Inventory, m.Addresses...)
	}
	s.Modes = loaded.Families
	for _, p := range loaded.IPAM.Pools {
		if !p.Own {
			s.Pools = append(s.Pools, p.Prefix)
		}
		if p.VSwitch {
			s.VSwitch.Pools = append(s.VSwitch.Pools, p.Prefix)
		}
	}
	s.VSwitch.Subnet, s.VSwitch.Gateway = loaded.VSwitch.Subnet, loaded.VSwitch.Gateway()
	s.Tunnels = agent.TunnelSettings{Enabled: loaded.WireGuard.Enabled(), Port: loaded.WireGuard.Port}
	if s.preshared, err = wireguard.LoadPreshared(loaded.WireGuard.PresharedKeyFile); err != nil {
		wrong = append(wrong, fmt.Errorf("%s %s: %w", config.PresharedKeyFile,
			loaded.WireGuard.PresharedKeyFile, err))
	}
	if loaded.WireGuard.Mode == config.WireGuardAlways {
		s.Tunnels.Phase = loaded.WireGuard.Phase
	}
	if api != nil {
		if addr, known := config.ServerAddress(api.Host); known {
			s.Tunnels.Server = []netip.Addr{addr}
		}
	}
	s.PodRanges = agent.PodRanges(s.Pools, loaded.IPAM.Exclude)
	// Without pools, the destinations of routes to the gateway are unknown.
	if s.Modes.Any(routes.ByCloud) && len(loaded.IPAM.Pools) == 0 {
		wrong = append(wrong, errors.New("--cluster-cidr: no pods' range is given; give the flag that the cloud controller manager has, or pools in the file"))
	}
	if err := errors.Join(wrong...); err != nil {
		return s, err
	}
	if s.client, err = kubernetes.NewForConfig(api); err != nil {
		err = fmt.Errorf("preparing the client of the API server: %w; outside of a pod give --kubeconfig", err)
	}
	return s, err
}

// places checks the flags that name a file, a folder or a URL, and returns all mistakes. A
// relative path would depend on the working directory.
func (o *options) places() []error {
	var wrong []error
	absolute := func(flag, path string) {
		if !filepath.IsAbs(path) {
			wrong = append(wrong, fmt.Errorf("%s %q: is no absolute path; give one that begins with /", flag,
				path))
		}
	}
	absolute("--cni-conf-dir", o.cniConfDir)
	if len(o.cniBinDirs) == 0 {
		wrong = append(wrong,
			errors.New("--cni-bin-dir: no folder is given; leave the flag out, or give one such as /opt/cni/bin"))
	}
	for _, dir := range o.cniBinDirs {
		absolute("--cni-bin-dir", dir)
	}
	absolute("--state-dir", o.stateDir)
	absolute("--key-dir", o.keyDir)
	absolute("--sysctls", o.sysctls)
	if o.apiServer == "" {
		return wrong
	}
	parsed, err := url.Parse(o.apiServer)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
		wrong = append(wrong, fmt.Errorf("--api-server %q: is no https URL with a host; give one such as https://10.0.0.2:6443", o.apiServer))
	}
	return wrong
}
