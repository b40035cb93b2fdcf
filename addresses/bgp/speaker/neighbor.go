package speaker

import (
	"time"

	"github.com/osrg/gobgp/v4/api"

	announce "github.com/underlay-ccm/underlay/addresses/bgp"
)

const (
	// retrySeconds is the pause between two attempts to connect, and after the end of a session.
	retrySeconds = 5
	// deferSeconds limits how long a restarted speaker waits for all its routers before it
	// announces to the first of them. It needs no routes of theirs.
	deferSeconds = 1
	// maxReceived is the maximum number of prefixes per family before a session is shut down: each
	// takes some hundred bytes, although it is rejected.
	maxReceived = 5000
	// multihopTTL allows any number of hops.
	multihopTTL = 255
)

// neighbor returns a session in GoBGP's form. With restarting, the router keeps what an earlier
// process may have announced until this process has announced everything.
func neighbor(p announce.Peer, restart time.Duration, restarting bool) *api.Peer {
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	if p.Address.Is6() {
		family.Afi = api.Family_AFI_IP6
	}
	peer := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: p.Address.String(), PeerAsn: p.ASN, AuthPassword: p.Password.Reveal(),
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: uint64(p.HoldTime.Seconds()), KeepaliveInterval: uint64(p.HoldTime.Seconds()) / 3,
			ConnectRetry: retrySeconds, IdleHoldTimeAfterReset: retrySeconds,
		}},
		Transport: &api.Transport{RemotePort: uint32(p.Port)},
		GracefulRestart: &api.GracefulRestart{
			Enabled: restart > 0, RestartTime: uint32(restart.Seconds()),
			DeferralTime: deferSeconds, LocalRestarting: restarting,
			// RFC 8538 is not used: routers would also keep the announcements of a machine that was
			// unresponsive for the hold time.
		},
		EbgpMultihop: &api.EbgpMultihop{Enabled: p.Multihop, MultihopTtl: multihopTTL},
		AfiSafis: []*api.AfiSafi{{
			Config: &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{
				Config: &api.MpGracefulRestartConfig{Enabled: restart > 0},
			},
			PrefixLimits: &api.PrefixLimit{Family: family, MaxPrefixes: maxReceived},
		}},
	}
	if p.BFD {
		interval := uint32(announce.BFDInterval.Microseconds())
		peer.Bfd = &api.BfdPeerConfig{
			Enabled: true, DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval,
			DetectionMultiplier: announce.BFDMisses,
		}
	}
	return peer
}
