package controlplane

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"
)

// Options configure a control plane. The zero value is useful.
type Options struct {
	// Dir holds certificates, kubeconfigs, etcd's data, logs and the audit log.
	// Empty: a new temporary folder, which Stop removes.
	Dir string

	// Address is the address at which the API server listens, an IPv4 address of this machine. The
	// zero Addr: 127.0.0.1.
	Address netip.Addr

	// ServiceCIDRs are the ranges of ClusterIPs, one or two, the primary family
	// first. Empty: 10.96.0.0/16 and fd00:96::/112.
	ServiceCIDRs []netip.Prefix

	// WithoutControllerManager leaves kube-controller-manager out, and so default ServiceAccounts,
	// garbage collection, and node lifecycle.
	WithoutControllerManager bool

	// NodeMonitorGracePeriod is how long a node may be unresponsive before it is marked as
	// unreachable: 8 s by default, against upstream's 50 s. A kubelet has to renew its Lease at
	// least twice within it.
	NodeMonitorGracePeriod time.Duration

	// NodeMonitorPeriod is how often node health is checked: 1 s by default.
	NodeMonitorPeriod time.Duration

	// Further arguments, after the usual ones: of a flag given twice the last value applies, a list
	// such as --controllers is added to.
	ExtraEtcdArgs              []string
	ExtraAPIServerArgs         []string
	ExtraControllerManagerArgs []string

	// Progress receives the output of the build and a message when the control plane is ready. Nil:
	// standard error.
	Progress io.Writer
}

// complete fills in the defaults and returns an error for options that cannot work.
func (o Options) complete() (Options, error) {
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []netip.Prefix{
			netip.MustParsePrefix("10.96.0.0/16"),
			netip.MustParsePrefix("fd00:96::/112"),
		}
	}
	if !o.Address.IsValid() {
		o.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if !o.Address.Is4() {
		return o, fmt.Errorf("option Address: %v: give an IPv4 address of this machine", o.Address)
	}
	if len(o.ServiceCIDRs) > 2 {
		return o, fmt.Errorf("ServiceCIDRs: %v: give one range, or one of each family", o.ServiceCIDRs)
	}
	for _, prefix := range o.ServiceCIDRs {
		if !prefix.IsValid() || prefix != prefix.Masked() {
			return o, fmt.Errorf("ServiceCIDRs: %v: give the range's first address, without host bits", prefix)
		}
	}
	if o.NodeMonitorGracePeriod == 0 {
		o.NodeMonitorGracePeriod = 8 * time.Second
	}
	if o.NodeMonitorPeriod == 0 {
		o.NodeMonitorPeriod = time.Second
	}
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	return o, nil
}
