package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// The lease of underlay-ccm's leader election.
const (
	leaseNamespace = "kube-system"
	leaseName      = "cloud-controller-manager"
)

// build builds missing programs: the control plane's binary once, which takes minutes, and
// underlay-ccm and underlayctl into folder.
func build(ctx context.Context, t *terminal, folder string) (manager, reader string, err error) {
	if _, err := kubebinary.Path(ctx, os.Stderr); err != nil {
		return "", "", err
	}
	began := time.Now()
	t.wait(t.Status(0, []string{"underlay-ccm and underlayctl to be built"}, t.width))
	if manager, err = cluster.BuildManager(ctx, folder); err != nil {
		return "", "", err
	}
	if reader, err = cluster.BuildReader(ctx, folder); err != nil {
		return "", "", err
	}
	t.print(t.Note(fmt.Sprintf("underlay-ccm and underlayctl built in %.1f s", time.Since(began).Seconds())))
	return manager, reader, nil
}

// start starts everything in folder and returns when underlay-ccm leads.
func start(
	ctx context.Context, t *terminal, folder, manager string, limit time.Duration,
) (*demo, error) {
	t.wait(t.Status(0, []string{"the control plane"}, t.width))
	began := time.Now()
	note := func(format string, args ...any) {
		t.print(t.Note(fmt.Sprintf("%4.1f s  ", time.Since(began).Seconds()) + fmt.Sprintf(format, args...)))
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager: manager, Cloud: cloudOptions(),
		ControlPlane: controlplane.Options{Dir: folder, Progress: io.Discard},
	})
	if err != nil {
		return nil, err
	}
	d := &demo{terminal: t, cluster: c, timeline: state.NewTimeline(), state: state.New(state.Layout{
		Pods: []netip.Prefix{netip.MustParsePrefix(podRange)}, RouteLimit: routeLimit,
	})}
	note("control plane at %s: etcd, kube-apiserver, kube-controller-manager", c.ControlPlane.URL())
	note("simulated cloud at %s, network %s with somebody's own route %s", c.CloudURL, c.Network.IPRange, foreign().Dst)
	if err := d.lead(ctx, limit); err != nil {
		c.Stop()
		return nil, err
	}
	note("underlay-ccm leads, with the permissions of deploy/ccm/rbac.yaml")
	if err := install(ctx, c); err != nil {
		c.Stop()
		return nil, err
	}
	note("admission policies of deploy/ccm, kube-proxy's configuration of deploy/kubeadm")
	return d, nil
}

// lead starts underlay-ccm and the watch, and waits until it is the leader.
func (d *demo) lead(ctx context.Context, limit time.Duration) error {
	own := foreign()
	err := d.cluster.Cloud.AddRoute(d.cluster.Network.ID, hcloudsim.RouteSeed{
		Destination: own.Dst, Gateway: own.Via,
	})
	if err != nil {
		return fmt.Errorf("adding a route of somebody else's: %w", err)
	}
	if d.observer, err = observe(ctx, d.cluster); err != nil {
		return err
	}
	if d.manager, err = d.cluster.StartManager(ctx, cluster.ManagerOptions{
		Config: d.cluster.CloudConfig() + families, Args: []string{"--cluster-cidr=" + podRange},
	}); err != nil {
		return err
	}
	says := "nothing"
	err = wait.PollUntilContextTimeout(ctx, lookEvery, limit, true,
		func(ctx context.Context) (bool, error) {
			if d.manager.Ended() {
				return false, d.manager.Failure(d.manager.Died())
			}
			lease, err := d.cluster.Client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName,
				metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil {
				return false, nil // not there yet
			}
			status, body := d.manager.Health(ctx)
			says = fmt.Sprintf("%d %s", status, strings.TrimSpace(body))
			return status == http.StatusOK, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for underlay-ccm to lead, its health says %q: %w", says, err)
	}
	// The state before the first step is not reported as changes.
	if err := d.observer.look(d.state); err != nil {
		return err
	}
	d.timeline.Observe(time.Now(), d.state.Facts())
	return nil
}
