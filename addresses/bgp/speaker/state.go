package speaker

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	announce "github.com/underlay-ccm/underlay/addresses/bgp"
)

// State returns the state of each session of the last successful Set, by name. A session that GoBGP
// does not have is Idle.
func (s *Speaker) State(ctx context.Context) ([]announce.PeerState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]*api.Peer)
	bfd := make(map[string]string)
	if s.running != nil {
		err := s.running.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) {
			found[p.Conf.NeighborAddress] = p
		})
		if err != nil {
			return nil, fmt.Errorf("BGP: reading the state of sessions: %w", err)
		}
		s.running.ListBfdPeer(ctx, func(address string, b *api.BfdPeerState) {
			bfd[address] = word(b.SessionState.String(), "BFD_SESSION_STATE_")
		})
	}
	var states []announce.PeerState
	for _, p := range s.have.Sorted() {
		state := announce.PeerState{Router: addresses.Router{Name: p.Name, State: "Idle"}, Address: p.Address}
		if f := found[p.Address.String()]; f != nil {
			fill(&state, f)
		}
		state.BFD = bfd[p.Address.String()]
		if state.Reason == "" && !state.Established {
			state.Reason = s.seen.reason(p.Address)
		}
		states = append(states, state)
	}
	return states, nil
}

func fill(state *announce.PeerState, p *api.Peer) {
	state.State = sessionState(p.State.SessionState)
	state.Established = p.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED
	if p.State.AdminState == api.PeerState_ADMIN_STATE_PFX_CT {
		state.Reason = fmt.Sprintf("the router announced more than %d prefixes: let it announce none to nodes, and restart the agent", maxReceived)
	}
	if !state.Established {
		return
	}
	agreed := make(map[addresses.Family]bool)
	for _, c := range p.State.RemoteCap {
		if f := c.GetMultiProtocol().GetFamily(); f.GetSafi() == api.Family_SAFI_UNICAST {
			agreed[addressFamily(f)] = true
		}
	}
	for _, a := range p.AfiSafis {
		if f := addressFamily(a.GetState().GetFamily()); agreed[f] {
			state.Carries = append(state.Carries, f)
			state.Announced += int(a.State.Advertised)
		}
	}
}

func addressFamily(f *api.Family) addresses.Family {
	if f.GetAfi() == api.Family_AFI_IP6 {
		return addresses.IPv6
	}
	return addresses.IPv4
}

// sessionState returns a state as RFC 4271 writes it.
func sessionState(s api.PeerState_SessionState) string {
	switch s {
	case api.PeerState_SESSION_STATE_OPENSENT:
		return "OpenSent"
	case api.PeerState_SESSION_STATE_OPENCONFIRM:
		return "OpenConfirm"
	default:
		return word(s.String(), "SESSION_STATE_")
	}
}

// word returns the name of a GoBGP value without its prefix, capitalized.
func word(name, prefix string) string {
	w := strings.ToLower(strings.TrimPrefix(name, prefix))
	if w == "" {
		return w
	}
	return strings.ToUpper(w[:1]) + w[1:]
}

// sessions caches GoBGP's events of sessions, which can arrive while Speaker.mu is held.
type sessions struct {
	mu      *sync.Mutex
	names   map[netip.Addr]string
	reasons map[netip.Addr]string
	up      map[netip.Addr]bool
}

func newSessions() sessions {
	return sessions{mu: new(sync.Mutex), names: map[netip.Addr]string{}, reasons: map[netip.Addr]string{}, up: map[netip.Addr]bool{}}
}

func (s sessions) rename(peers []announce.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range peers {
		s.names[p.Address] = p.Name
	}
}

func (s sessions) forget(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.up, a)
	delete(s.reasons, a)
}

func (s sessions) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.up)
	clear(s.reasons)
}

func (s sessions) reason(a netip.Addr) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reasons[a]
}

func (s sessions) attempted(address, reason string) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up[a] {
		s.reasons[a] = reason
	}
}

func (s sessions) observe(logger klog.Logger, state apiutil.PeerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := state.NeighborAddress
	logger = logger.WithValues("peer", s.names[a], "address", a)
	if state.SessionState == bgp.BGP_FSM_ESTABLISHED {
		s.up[a] = true
		delete(s.reasons, a)
		logger.Info("BGP session established", "routerID", state.RouterID)
		return
	}
	if reason := endOf(state); reason != "" {
		s.reasons[a] = reason
	}
	if s.up[a] {
		delete(s.up, a)
		logger.Info("BGP session ended", "reason", s.reasons[a])
	}
}

// endOf returns why a session ended or was not established; empty: no reason.
func endOf(state apiutil.PeerState) string {
	switch state.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_UNSPECIFIED, api.PeerState_DISCONNECT_REASON_IDLE_TIMER_EXPIRED:
		return "" // normal between two attempts
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		return "the router ended the attempt: compare the numbers of the autonomous systems on both sides; see the router's log"
	case api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return "the router has another number of an autonomous system"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "nothing came from the router for the hold time"
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED, api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection broke, or nothing came from the router for the hold time"
	default:
		return state.DisconnectMessage
	}
}
