package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
	"k8s.io/klog/v2"

	announce "github.com/underlay-ccm/underlay/addresses/bgp"
)

// Speaker runs sessions. It is safe for concurrent use.
type Speaker struct {
	logger  klog.Logger
	changed func()
	started time.Time

	mu      sync.Mutex
	running *running // nil before the first peer and after Close
	// have was last applied to running; zero if that failed, or nothing was applied yet.
	have announce.Desired
	// peers are those of the last successful Set.
	peers []announce.Peer
}

// running is GoBGP's server, which can't be restarted.
type running struct {
	*server.BgpServer
	log     *logHandler
	unwatch context.CancelFunc
}

// logHandler is GoBGP's log. It can be silenced, because Stop logs an error after StopBgp.
type logHandler struct {
	slog.Handler
	silent atomic.Bool
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return !h.silent.Load() && h.Handler.Enabled(ctx, level)
}

// New returns a Speaker without sessions. It calls changed when the state of a session changes.
// changed must return at once and must not call the Speaker.
func New(logger klog.Logger, changed func()) *Speaker {
	return &Speaker{logger: logger, changed: changed, started: time.Now()}
}

// Set replaces the sessions and announcements by those of want. It does not wait for routers. After
// an error the next call restarts all sessions; with a RestartTime, routers keep the announcements.
//
// The first call in a process must contain all announcements of the process before it: what is
// missing is withdrawn when a session is established.
func (s *Speaker) Set(ctx context.Context, want announce.Desired) error {
	if want.ASN == 0 || !want.RouterID.Is4() { // GoBGP rejects them only after sessions ended
		return fmt.Errorf("BGP: asn: %d, router ID: %s: not those of a speaker", want.ASN, want.RouterID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want = want.Canonical()
	plan := announce.Diff(s.have, want)
	if plan.Empty() || s.running == nil && len(want.Peers) == 0 {
		return nil
	}
	failed := s.have.ASN == 0
	s.have = announce.Desired{}
	if plan.Restart {
		s.stop(failed) // routers drop the routes of a node with another ASN or router ID
		if err := s.start(ctx, want); err != nil {
			return fmt.Errorf("BGP: %w", err)
		}
	}
	if err := s.apply(ctx, plan, want); err != nil {
		return fmt.Errorf("BGP: %w", err)
	}
	s.have, s.peers = want, want.Peers
	return nil
}

func (s *Speaker) apply(ctx context.Context, plan announce.Plan, want announce.Desired) error {
	r := s.running
	if len(plan.Begin) > 0 {
		if err := r.SetPolicies(ctx, policies(want)); err != nil {
			return fmt.Errorf("setting the communities of peers: %w", err)
		}
	}
	for _, p := range plan.Announce {
		path, err := toPath(p)
		if err == nil {
			_, err = r.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			return fmt.Errorf("announcing %s: %w", p, err)
		}
	}
	for _, p := range plan.End {
		if err := r.DeletePeer(ctx, &api.DeletePeerRequest{Address: p.Address.String()}); err != nil {
			return fmt.Errorf("ending the session with %s: %w", p.Name, err)
		}
	}
	restarting := time.Since(s.started) < want.RestartTime
	for _, p := range plan.Begin {
		peer := neighbor(p, want.RestartTime, restarting)
		if err := r.AddPeer(ctx, &api.AddPeerRequest{Peer: peer}); err != nil {
			return fmt.Errorf("beginning a session with %s: %w", p.Name, err)
		}
	}
	var errs []error
	for _, p := range plan.Withdraw {
		path, err := toPath(p)
		if err == nil {
			err = r.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("withdrawing %s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Speaker) start(ctx context.Context, want announce.Desired) error {
	// GoBGP's log is passed on at lower levels, a warning at -v=2: an unreachable router must not be
	// logged every few seconds.
	log := &logHandler{Handler: logr.ToSlogHandler(s.logger.WithName("gobgp").V(6))}
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	bgpServer := server.NewBgpServer(server.LoggerOption(slog.New(log), nil))
	r := &running{BgpServer: bgpServer, log: log, unwatch: unwatch}
	go r.Serve()
	s.running = r
	err := r.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: want.ASN, RouterId: want.RouterID.String(),
		ListenPort: -1, // the node opens the sessions
	}})
	if err != nil {
		return fmt.Errorf("starting with the number %d and the ID %s: %w", want.ASN, want.RouterID, err)
	}
	if err := r.SetPolicies(ctx, policies(want)); err != nil {
		return fmt.Errorf("setting policies: %w", err)
	}
	for _, assignment := range assignments() {
		if err := r.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{
			Assignment: assignment,
		}); err != nil {
			return fmt.Errorf("rejecting the routers' announcements: %w", err)
		}
	}
	logState := logSessions(s.logger)
	callbacks := server.WatchEventMessageCallbacks{
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type == apiutil.PEER_EVENT_STATE {
				logState(e.Peer.State)
				s.changed()
			}
		},
	}
	if err := r.WatchEvent(watching, callbacks, server.WatchPeer()); err != nil {
		return fmt.Errorf("watching sessions: %w", err)
	}
	return nil
}

// Close ends all sessions. Routers keep the announcements only if there is a RestartTime.
func (s *Speaker) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(true)
	s.have, s.peers = announce.Desired{}, nil
}

// stop ends the server. With keep and a RestartTime, routers keep the announcements.
func (s *Speaker) stop(keep bool) {
	r := s.running
	if r == nil {
		return
	}
	s.running = nil
	r.unwatch()
	// An error means that it has stopped already.
	_ = r.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: keep})
	r.log.silent.Store(true)
	r.Stop() // BFD, which StopBgp does not stop
}

// toPath returns a local path in GoBGP's form, with the local address of the session as next hop.
// The attribute of the next hop depends on the family (RFC 4271, RFC 4760).
func toPath(p netip.Prefix) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(p)
	if err != nil {
		return nil, err
	}
	family := bgp.RF_IPv4_UC
	var hop bgp.PathAttributeInterface
	if p.Addr().Is4() {
		hop, err = bgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
	} else {
		family = bgp.RF_IPv6_UC
		hop, err = bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}},
			netip.IPv6Unspecified())
	}
	const igp = 0 // the route is interior to the node's autonomous system
	return &apiutil.Path{
		Family: family, Nlri: nlri,
		Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(igp), hop},
	}, err
}
