package speaker

import (
	"github.com/osrg/gobgp/v4/api"

	announce "github.com/underlay-ccm/underlay/addresses/bgp"
)

const (
	// retrySeconds is the time between two attempts to reach a router, and after a session has ended.
	retrySeconds = 5
	// deferSeconds is how long a speaker that restarts waits for the last of its routers before it
	// tells the first one what it announces. It learns nothing from them that it would need for it.
	deferSeconds = 1
	// maxReceived is how many prefixes a router may announce in a family before it is given up: each
	// takes some hundred bytes, although it is refused.
	maxReceived = 5000
	// multihopTTL lets packets take any number of hops.
	multihopTTL = 255
)

// neighbor is a session as the library has it. restarting: another process of this node may have
// announced before, and the router is to keep that until it has heard everything from this one.
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
			// RFC 8538 is left out: with it, routers would keep what a machine announced that
			// has been silent for the hold time.
		},
		EbgpMultihop: &api.EbgpMultihop{Enabled: s.Multihop, MultihopTtl: multihopTTL},
	}
	if s.BFD {
		interval := uint32(announce.BFDInterval.Microseconds())
		peer.Bfd = &api.BfdPeerConfig{
			Enabled: true, DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval, DetectionMultiplier: announce.BFDMisses,
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
		Config:            &api.AfiSafiConfig{Family: f, Enabled: true},
		MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: restarts}},
		PrefixLimits:      &api.PrefixLimit{Family: f, MaxPrefixes: maxReceived},
	}
}
