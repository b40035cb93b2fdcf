//go:build linux

package address_test

import (
	"context"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/metallb"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// contender assigns addresses of the segment to Services.
type contender interface {
	name() string
	// settings are further lines of Underlay's configuration.
	settings() string
	// start installs it in a lab with ready machines.
	start(w *world) error
	// accounts are the users of its programs at the API server.
	accounts() []string
	// stop ends the announcing program on a machine, as an upgrade does; resume starts it again.
	stop(ctx context.Context, w *world, m *netlab.Machine) error
	resume(ctx context.Context, w *world, m *netlab.Machine) error
}

// underlay is Underlay.
type underlay struct{}

func (underlay) name() string { return "underlay" }

func (underlay) settings() string {
	return "addresses:\n  pools:\n  - {name: segment, ranges: [" + addressRange + "]}\n"
}

func (underlay) start(*world) error { return nil } // it runs in the lab already

func (underlay) accounts() []string {
	return []string{"system:serviceaccount:kube-system:underlay-ccm", "system:serviceaccount:kube-system:underlay-agent"}
}

func (underlay) stop(
	ctx context.Context, _ *world, m *netlab.Machine,
) error {
	return m.StopAgent(ctx)
}

func (underlay) resume(ctx context.Context, _ *world, m *netlab.Machine) error {
	return m.StartAgent(ctx)
}

// peer is MetalLB, on a cluster whose pods Underlay connects.
type peer struct {
	built   metallb.MetalLB
	ranges  []string // ranges of its pool
	running *metallb.Running
}

func (*peer) name() string { return "metallb" }

func (*peer) settings() string { return "" }

func (p *peer) start(w *world) (err error) {
	if p.running, err = p.built.Install(w.b.Context(), w.lab); err != nil {
		return err
	}
	w.b.Cleanup(p.running.Stop)
	if err := p.running.AddPool(w.b.Context(), p.ranges...); err != nil {
		return err
	}
	for _, m := range w.machines {
		if err := p.running.StartSpeaker(w.b.Context(), m); err != nil {
			return err
		}
	}
	return nil
}

func (*peer) accounts() []string { return metallb.Accounts }

// stop waits for two seconds at most, the grace period of the DaemonSet.
func (p *peer) stop(ctx context.Context, _ *world, m *netlab.Machine) error {
	speaker := p.running.Speaker(m)
	if err := speaker.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-speaker.Done():
	case <-time.After(2 * time.Second):
		speaker.Kill()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (p *peer) resume(ctx context.Context, _ *world, m *netlab.Machine) error {
	return p.running.StartSpeaker(ctx, m)
}
