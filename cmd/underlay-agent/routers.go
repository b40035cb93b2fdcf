//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/addresses/bgp/speaker"
	"github.com/underlay-ccm/underlay/internal/config"
)

// routers is the mover of addresses that are announced to BGP routers.
type routers struct {
	self     string
	settings config.BGP

	mu      sync.Mutex
	want    addresses.Assignment
	speaker *speaker.Speaker // nil while Run does not run
	// announced is set if the speaker took want; problem may be about a single router.
	announced bool
	problem   error
}

func newRouters(self string, settings config.BGP) *routers {
	return &routers{self: self, settings: settings}
}

const (
	// retryAnnouncing is the interval of attempts after a failed change of sessions or announcements.
	retryAnnouncing = 5 * time.Second
	// stateTimeout limits a read of the sessions' state.
	stateTimeout = time.Second
)

// Set announces the desired state while Run runs.
func (r *routers) Set(w addresses.Assignment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = w
	r.announce()
}

// Run runs the sessions until ctx is done. Routers then keep the announcements for the restart
// time.
func (r *routers) Run(ctx context.Context, changed func()) error {
	r.mu.Lock()
	r.speaker = speaker.New(klog.FromContext(ctx), changed)
	r.announce()
	r.mu.Unlock()
	changed()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.speaker.Close()
		r.speaker = nil
	}()
	wait.UntilWithContext(ctx, func(context.Context) {
		r.mu.Lock()
		failed := r.problem != nil
		if failed {
			r.announce()
		}
		recovered := failed && r.problem == nil
		r.mu.Unlock()
		if recovered {
			changed()
		}
	}, retryAnnouncing)
	return nil
}

// announce sets all announcements once this machine's Node is known, whose labels select its
// routers.
func (r *routers) announce() {
	if r.speaker == nil || r.want.Node == nil {
		return
	}
	desired, err := r.desired(r.want)
	failed := r.speaker.Set(context.Background(), desired)
	r.announced, err = failed == nil, errors.Join(err, failed)
	if err != nil && (r.problem == nil || r.problem.Error() != err.Error()) {
		klog.Background().Error(err,
			"The addresses that this node holds are not announced to routers; trying again")
	}
	r.problem = err
}

// desired returns the desired sessions and announcements, without routers with an unreadable
// password.
func (r *routers) desired(w addresses.Assignment) (bgp.Desired, error) {
	d := bgp.Desired{
		ASN: r.settings.ASN, RouterID: bgp.RouterID(r.self, w.Node.InternalIPs),
		RestartTime: bgp.DefaultRestartTime,
	}
	var problems []error
	for _, p := range r.settings.Peers {
		if p.Nodes != nil && !p.Nodes.Matches(labels.Set(w.Node.Labels)) {
			continue
		}
		peer, err := peerOf(p)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		d.Peers = append(d.Peers, peer)
	}
	for _, h := range w.Hold {
		d.Prefixes = append(d.Prefixes, bgp.Host(h.Address))
	}
	if r.settings.PodCIDRs {
		d.Prefixes = append(d.Prefixes, w.Node.PodCIDRs...)
	}
	return d, errors.Join(problems...)
}

func peerOf(p config.BGPPeer) (bgp.Peer, error) {
	peer := p.Peer
	if p.PasswordFile == "" {
		return peer, nil
	}
	text, err := os.ReadFile(p.PasswordFile)
	if err == nil {
		peer.Password, err = bgp.NewPassword(string(text))
	}
	if err != nil {
		return bgp.Peer{}, fmt.Errorf("passwordFile %s of router %s: %w", p.PasswordFile, p.Name, err)
	}
	return peer, nil
}

// passwords returns the mistakes in password files, which stop a rollout at its first node: later
// they cost only one session. The file for a router of some nodes may exist only on those nodes.
func passwords(b config.BGP) (wrong []error) {
	for i, p := range b.Peers {
		_, err := peerOf(p)
		if err == nil || p.Nodes != nil && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		wrong = append(wrong,
			fmt.Errorf("addresses.bgp.peers[%d].%w; the file is to hold the password alone, "+
				"and on each node: the chart's bgp.secretName names the Secret that it comes from", i, err))
	}
	return wrong
}

// Status returns an address as held if there is an established session of its family.
func (r *routers) Status() (now addresses.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	problem := r.problem
	if r.speaker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
		defer cancel()
		var err error
		now.Routers, err = r.speaker.State(ctx)
		problem = cmp.Or(problem, err)
	}
	carried := map[addresses.Family]bool{}
	for _, p := range r.settings.Peers {
		if slices.ContainsFunc(now.Routers, func(session addresses.Router) bool {
			return session.Name == p.Name && session.Established
		}) {
			carried[addresses.FamilyOf(p.Address)] = true
		}
	}
	for _, h := range r.want.Hold {
		f := addresses.FamilyOf(h.Address)
		if carried[f] && r.announced {
			now.Held = append(now.Held, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
			continue
		}
		now.Refused = append(now.Refused, addresses.Problem{
			Address: h.Address, Reason: addresses.NoRouter, Text: noRouter(f, now.Routers, problem),
		})
	}
	return now
}

// noRouter returns why no router has addresses of a family from this node.
func noRouter(f addresses.Family, sessions []addresses.Router, problem error) string {
	switch {
	case problem != nil:
		return "it is not announced to routers: " + problem.Error()
	case len(sessions) == 0:
		return "no router of addresses.bgp.peers is for this node: give one a nodeSelector that matches its labels"
	}
	return fmt.Sprintf("this node has no session of %s with a router: look at the routers' BGP, and "+
		"at their state in underlayctl addresses", f)
}
