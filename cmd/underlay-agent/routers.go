//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/addresses/bgp/speaker"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// routers is the mover of addresses that are announced to BGP routers.
type routers struct {
	self     string
	settings config.BGP
	pools    []addresses.Pool
	kick     chan struct{}

	mu      sync.Mutex
	want    addressagent.Want
	current bgp.Desired
	speaker *speaker.Speaker // nil while Run does not run
	problem error
}

func newRouters(self string, settings config.BGP, pools []addresses.Pool) *routers {
	return &routers{self: self, settings: settings, pools: pools, kick: make(chan struct{}, 1)}
}

// Set makes Run announce the desired state.
func (r *routers) Set(w addressagent.Want) {
	r.mu.Lock()
	r.want = w
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// retrySpeaking is the pause after a failed change of sessions or announcements.
const retrySpeaking = 5 * time.Second

// Run runs the sessions until ctx is done. Routers then keep the announcements for the restart time.
func (r *routers) Run(ctx context.Context, changed func()) error {
	s := speaker.New(klog.FromContext(ctx), changed)
	r.mu.Lock()
	r.speaker = s
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.speaker = nil
		r.mu.Unlock()
		s.Close()
	}()
	var again <-chan time.Time
	for {
		err := r.publish(ctx, s)
		r.mu.Lock()
		news := (err == nil) != (r.problem == nil)
		r.problem = err
		r.mu.Unlock()
		if again = nil; err != nil {
			again = time.After(retrySpeaking)
			klog.FromContext(ctx).Error(err, "The addresses that this node holds are not announced to routers; trying again")
		}
		if news {
			changed()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		case <-again:
		}
	}
}

// publish sets all announcements once this machine's Node is known, whose labels select its routers.
func (r *routers) publish(ctx context.Context, s *speaker.Speaker) error {
	r.mu.Lock()
	w := r.want
	r.mu.Unlock()
	if w.Node == nil {
		return nil
	}
	desired, problem := r.desired(w)
	if err := s.Set(ctx, desired); err != nil {
		return errors.Join(problem, err)
	}
	r.mu.Lock()
	r.current = desired
	r.mu.Unlock()
	return problem
}

// desired returns the desired sessions and announcements, without routers with an unreadable password.
func (r *routers) desired(w addressagent.Want) (bgp.Desired, error) {
	own := kube.InternalIPs(w.Node)
	d := bgp.Desired{
		ASN: r.settings.ASN, RouterID: bgp.RouterID(r.self, own), RestartTime: bgp.DefaultRestartTime,
	}
	var problems []error
	for _, p := range r.settings.Peers {
		if !peersWith(p, w.Node) {
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
		podCIDRs, err := kube.PodCIDRs(w.Node)
		problems = append(problems, err)
		d.Prefixes = append(d.Prefixes, podCIDRs...)
	}
	for _, a := range own {
		if r.announces(addresses.FamilyOf(a), d.Prefixes) {
			d.NextHops = append(d.NextHops, a)
		}
	}
	return d, errors.Join(problems...)
}

// announces reports whether prefixes of a family may be announced: routers log a warning if a family
// is offered and never used.
func (r *routers) announces(f addresses.Family, prefixes []netip.Prefix) bool {
	current := func(p netip.Prefix) bool { return addresses.FamilyOf(p.Addr()) == f }
	offered := func(p addresses.Pool) bool { return p.Size(f) > 0 }
	return slices.ContainsFunc(prefixes, current) || slices.ContainsFunc(r.pools, offered)
}

func peersWith(p config.BGPPeer, node *corev1.Node) bool {
	return p.Nodes == nil || p.Nodes.Matches(labels.Set(node.Labels))
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
		wrong = append(wrong, fmt.Errorf("addresses.bgp.peers[%d].%w; the file is to hold the password alone, "+
			"and on each node: the chart's bgp.secretName names the Secret that it comes from", i, err))
	}
	return wrong
}

// stateWithin limits a read of the sessions' state.
const stateWithin = time.Second

// State returns an address as held if an established session carries its family.
func (r *routers) State() (now addresses.Status) {
	r.mu.Lock()
	s, w, current, problem := r.speaker, r.want, r.current, r.problem
	r.mu.Unlock()
	var sessions []bgp.PeerState
	if s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stateWithin)
		defer cancel()
		var err error
		sessions, err = s.State(ctx)
		problem = cmp.Or(problem, err)
	}
	carried := map[addresses.Family]bool{}
	for _, session := range sessions {
		now.Routers = append(now.Routers, session.Router)
		for _, f := range session.Carries {
			carried[f] = carried[f] || session.Established
		}
	}
	for _, h := range w.Hold {
		f := addresses.FamilyOf(h.Address)
		switch {
		case carried[f] && slices.Contains(current.Prefixes, bgp.Host(h.Address)):
			now.Held = append(now.Held, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
		default:
			now.Refused = append(now.Refused, addresses.Problem{
				Address: h.Address, Reason: addresses.NoRouter, Text: r.noRouter(h.Address, sessions, problem),
			})
		}
	}
	return now
}

// noRouter returns why no router has an address from this node.
func (r *routers) noRouter(a netip.Addr, sessions []bgp.PeerState, problem error) string {
	f := addresses.FamilyOf(a)
	switch {
	case problem != nil:
		return "it is not announced to routers: " + problem.Error()
	case len(sessions) == 0:
		return "no router of addresses.bgp.peers is for this node: give one a nodeSelector that matches its labels"
	}
	return fmt.Sprintf("no session with a router of this node carries %s: look at the routers' BGP, and "+
		"at their state in underlayctl addresses", f)
}
