// Package kubelet imitates the requests of a kubelet that runs with --cloud-provider=external: it
// registers a Node that is tainted as uninitialized and has no podCIDR, then renews its Lease and
// its conditions. It runs no pods and never changes fields of a cloud controller manager: taints,
// podCIDRs, the provider ID, addresses once registered, and conditions other than a kubelet's own.
//
// With a node's own credentials it has the same permissions as a real one. Hundreds fit into one
// process.
//
// The objects that a kubelet writes are from its source, v1.37: initialNode and the setters of
// pkg/kubelet/nodestatus, and component-helpers/apimachinery/lease.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Options describe one machine.
type Options struct {
	// Name of the Node and hostname of the machine.
	Name string

	// InternalIPs are kubelet's --node-ip: none, one, or one of each family. Without one the Node
	// has its host name only.
	InternalIPs []netip.Addr

	// ProviderID is kubelet's --provider-id; mostly empty, which leaves it to
	// the cloud controller manager.
	ProviderID string

	// WithoutProvider is a kubelet without --cloud-provider=external: its Node needs no
	// initialization.
	WithoutProvider bool

	// Labels beside those of every kubelet. The API server rejects those that the NodeRestriction
	// admission plugin reserves.
	Labels map[string]string

	// ReadyWithPodCIDR keeps the Node NotReady until it has a podCIDR, as a CNI plugin that is
	// configured from it does. Otherwise it is Ready with the first heartbeat.
	ReadyWithPodCIDR bool

	// LeasePeriod is the time between two renewals of the Lease, which the node lifecycle
	// controller watches: 2 s by default (a real one: 10 s).
	LeasePeriod time.Duration

	// StatusPeriod is the time between two reports of unchanged conditions: 10 s by default (a real
	// one: 5 min). Until the Node is Ready, its state is checked every half second, and written as
	// soon as it changes.
	StatusPeriod time.Duration
}

func (o Options) complete() (Options, error) {
	if o.Name == "" {
		return o, errors.New("no Name: give the machine one")
	}
	if len(o.InternalIPs) > 2 {
		return o, fmt.Errorf("InternalIPs: %v: give one address, or one of each family", o.InternalIPs)
	}
	if o.LeasePeriod == 0 {
		o.LeasePeriod = 2 * time.Second
	}
	if o.StatusPeriod == 0 {
		o.StatusPeriod = 10 * time.Second
	}
	return o, nil
}

// unreadyPeriod is how often a kubelet that is not ready reads its Node.
const unreadyPeriod = 500 * time.Millisecond

// Kubelet is the kubelet of one machine that has joined.
type Kubelet struct {
	options  Options
	client   kubernetes.Interface
	ready    bool      // last reported state
	reported time.Time // time of the last report

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// Join registers the machine and begins its heartbeats, which continue until Stop is called or ctx
// ends. It keeps an existing Node of that name as it is, like a kubelet that was restarted.
func Join(ctx context.Context, config *rest.Config, options Options) (*Kubelet, error) {
	options, err := options.complete()
	if err != nil {
		return nil, fmt.Errorf("join a node: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("join node %s: make a client: %w", options.Name, err)
	}
	k := &Kubelet{options: options, client: client}
	_, err = client.CoreV1().Nodes().Create(ctx, initialNode(options, time.Now()),
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("join node %s: register it: %w", options.Name, err)
	}
	ctx, k.cancel = context.WithCancel(ctx)
	k.ended.Go(func() { k.beat(ctx) })
	return k, nil
}

// Stop ends the heartbeats, as when the machine dies. The Node remains.
func (k *Kubelet) Stop() {
	k.cancel()
	k.ended.Wait()
}

// beat sends the heartbeats. Failed requests are retried at the next one.
func (k *Kubelet) beat(ctx context.Context) {
	logger := klog.FromContext(ctx)
	lease := time.NewTicker(k.options.LeasePeriod)
	defer lease.Stop()
	status := time.NewTimer(0)
	defer status.Stop()
	k.try(logger, "renew the Lease", k.renewLease(ctx))
	for {
		select {
		case <-ctx.Done():
			return
		case <-lease.C:
			k.try(logger, "renew the Lease", k.renewLease(ctx))
		case <-status.C:
			k.try(logger, "report the status", k.reportStatus(ctx))
			status.Reset(k.statusPeriod())
		}
	}
}

func (k *Kubelet) try(logger klog.Logger, what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		logger.V(2).Info("Kubelet failed, will retry", "node", k.options.Name, "attempted", what, "err", err)
	}
}

func (k *Kubelet) statusPeriod() time.Duration {
	if !k.ready {
		return min(unreadyPeriod, k.options.StatusPeriod)
	}
	return k.options.StatusPeriod
}

// networked reports whether pods on the node could have addresses.
func (k *Kubelet) networked(node *corev1.Node) bool {
	return !k.options.ReadyWithPodCIDR || node.Spec.PodCIDR != ""
}
