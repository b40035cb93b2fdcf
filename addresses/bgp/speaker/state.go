package speaker

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
)

// State returns the state of each session of the last successful Set, by name. A session that GoBGP
// does not have is Idle.
func (s *Speaker) State(ctx context.Context) ([]addresses.Router, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]*api.Peer)
	if s.running != nil {
		err := s.running.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) {
			found[p.Conf.NeighborAddress] = p
		})
		if err != nil {
			return nil, fmt.Errorf("BGP: reading the state of sessions: %w", err)
		}
	}
	var states []addresses.Router
	for _, p := range s.peers {
		state := addresses.Router{Name: p.Name, State: "Idle"}
		if f := found[p.Address.String()]; f != nil {
			fill(&state, f, addresses.FamilyOf(p.Address))
		}
		states = append(states, state)
	}
	return states, nil
}

// prefixLimitReached is the state of a session that was shut down because its router announced more
// than maxReceived prefixes, named like the reason in RFC 4486.
const prefixLimitReached = "PrefixLimitReached"

// familyNotAccepted is the state of a session whose router doesn't accept its family.
const familyNotAccepted = "FamilyNotAccepted"

// fill sets the state of a session.
func fill(state *addresses.Router, p *api.Peer, f addresses.Family) {
	state.State = sessionState(p.State.SessionState)
	if p.State.AdminState == api.PeerState_ADMIN_STATE_PFX_CT {
		state.State = prefixLimitReached
	}
	established := p.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED
	if state.Established = established && accepts(p, f); state.Established != established {
		state.State = familyNotAccepted
	}
	if state.Established {
		for _, a := range p.AfiSafis {
			state.Announced += int(a.GetState().GetAdvertised())
		}
	}
}

// accepts reports whether the router accepts routes of a family, by its capabilities: without any,
// IPv4 (RFC 4760). Routers need not refuse a session whose family they don't accept.
func accepts(p *api.Peer, f addresses.Family) bool {
	wanted, any := api.Family_AFI_IP, false
	if f == addresses.IPv6 {
		wanted = api.Family_AFI_IP6
	}
	for _, c := range p.State.RemoteCap {
		if family := c.GetMultiProtocol().GetFamily(); family != nil {
			any = true
			if family.Afi == wanted && family.Safi == api.Family_SAFI_UNICAST {
				return true
			}
		}
	}
	return !any && f == addresses.IPv4
}

// sessionState returns a state as RFC 4271 writes it.
func sessionState(s api.PeerState_SessionState) string {
	return cmp.Or(map[api.PeerState_SessionState]string{
		api.PeerState_SESSION_STATE_CONNECT:     "Connect",
		api.PeerState_SESSION_STATE_ACTIVE:      "Active",
		api.PeerState_SESSION_STATE_OPENSENT:    "OpenSent",
		api.PeerState_SESSION_STATE_OPENCONFIRM: "OpenConfirm",
		api.PeerState_SESSION_STATE_ESTABLISHED: "Established",
	}[s], "Idle")
}

// logSessions returns the handler of GoBGP's events, which logs when sessions begin and end.
func logSessions(logger klog.Logger) func(apiutil.PeerState) {
	up := make(map[netip.Addr]bool)
	return func(p apiutil.PeerState) {
		peer := p.NeighborAddress
		established := p.SessionState == bgp.BGP_FSM_ESTABLISHED
		switch {
		case established:
			logger.Info("BGP session established", "peer", peer, "routerID", p.RouterID)
		case up[peer]:
			logger.Info("BGP session ended", "peer", peer, "reason", p.DisconnectReason, "message",
				p.DisconnectMessage)
		}
		up[peer] = established
	}
}
