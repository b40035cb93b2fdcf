package speaker

import (
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
func neighbor(s announce.Session, restarting bool) *api.Peer {
	peer := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: s.Address.String(), PeerAsn: s.ASN, AuthPassword: s.Password.Reveal(),
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: uint64(s.HoldTime.Seconds()), KeepaliveInterval: uint64(s.HoldTime.Seconds()) / 3,
			ConnectRetry: retrySeconds, IdleHoldTimeAfterReset: retrySeconds,
		}},
		Transport: &api.Transport{RemotePort: uint32(s.Port)},
		GracefulRestart: &api.GracefulRestart{
			Enabled: s.Offers.RestartSeconds > 0, RestartTime: uint32(s.Offers.RestartSeconds),
			DeferralTime: deferSeconds, LocalRestarting: restarting && s.Offers.RestartSeconds > 0,
			// RFC 8538 is not used: routers would also keep the announcements of a machine that was
			// unresponsive for the hold time.
		},
		EbgpMultihop: &api.EbgpMultihop{Enabled: s.Multihop, MultihopTtl: multihopTTL},
	}
	if s.BFD {
		interval := uint32(announce.BFDInterval.Microseconds())
		peer.Bfd = &api.BfdPeerConfig{
			Enabled: true, DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval,
			DetectionMultiplier: announce.BFDMisses,
		}
	}
	if s.Offers.IPv4 {
		peer.AfiSafis = append(peer.AfiSafis, family(api.Family_AFI_IP, s.Offers.RestartSeconds > 0))
	}
	if s.Offers.IPv6 {
		peer.AfiSafis = append(peer.AfiSafis, family(api.Family_AFI_IP6, s.Offers.RestartSeconds > 0))
	}
	return peer
}

func family(afi api.Family_Afi, restarts bool) *api.AfiSafi {
	f := &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}
	return &api.AfiSafi{
		Config: &api.AfiSafiConfig{Family: f, Enabled: true},
		MpGracefulRestart: &api.MpGracefulRestart{
			Config: &api.MpGracefulRestartConfig{Enabled: restarts},
		},
		PrefixLimits: &api.PrefixLimit{Family: f, MaxPrefixes: maxReceived},
	}
}
