package layer2

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestHolding(t *testing.T) {
	second := func(s *script) { s.pass(time.Second) }
	for name, c := range map[string]struct {
		run  func(s *script)
		said string
		end  Phase
		by   MAC
	}{
		"answers whoever asks":           {func(s *script) { s.receive(request) }, "5000 answer :08", Holding, MAC{}},
		"answers whoever wants it":       {func(s *script) { s.receive(dadOf(stranger)) }, "5000 answer :09", Holding, MAC{}},
		"answers nobody on another link": {func(s *script) { s.hearOn("up1", request) }, "", Holding, MAC{}},
		"answers nobody who asks for another address": {
			func(s *script) { m := request; m.Target = m.Target.Next(); s.receive(m) }, "", Holding, MAC{},
		},
		"hears itself": {func(s *script) { s.receive(claim(ownMAC, 0)); s.receive(dadOf(ownMAC)) }, "", Holding, MAC{}},
		"is claimed by a stranger once": {
			func(s *script) { s.receive(claim(stranger, 0)); second(s) }, "5000 announce, 6000 probe", Holding, MAC{},
		},
		"is claimed by a stranger who goes on": {
			func(s *script) { s.receive(claim(stranger, 0)); second(s); s.receive(claim(stranger, 0)) },
			"5000 announce, 6000 probe, 6000 announce", Holding, stranger,
		},
		"is defended once a second": {
			func(s *script) {
				for range 25 {
					s.receive(claim(stranger, 0))
					s.pass(100 * time.Millisecond)
				}
			},
			"5000 announce, 6000 probe, 6000 announce, 7000 announce", Holding, stranger,
		},
		"a stranger goes away": {
			func(s *script) {
				s.receive(claim(stranger, 0))
				second(s)
				s.receive(claim(stranger, 0))
				s.takeOutput()
				s.pass(70 * time.Second)
				s.phase(Holding, stranger)
				s.pass(30 * time.Second)
			},
			"31770 probe, 57540 probe, 83310 probe", Holding,
			MAC{},
		},
		"is claimed by an older one of ours": {
			func(s *script) { s.receive(claim(tagger, 4)); second(s); s.receive(claim(tagger, 4)) },
			"5000 announce, 6000 announce", Holding,
			MAC{},
		},
		"is asked for by an older one of ours, whom others may know": {
			func(s *script) { m := dadOf(tagger); m.Tag = claim(tagger, 4).Tag; s.receive(m); second(s) },
			"5000 answer :03, 5000 announce", Holding,
			MAC{},
		},
		"is asked for by a newer one of ours": {
			func(s *script) { m := dadOf(tagger); m.Tag = claim(tagger, 9).Tag; s.receive(m); second(s) },
			"5000 answer :03", Holding,
			MAC{},
		},
		"is claimed by a newer one of ours": {
			func(s *script) { s.receive(claim(tagger, 6)); s.receive(request) }, "", Yielded, tagger,
		},
		"is claimed by a friend that says no epoch": {
			func(s *script) { s.receive(claim(friend, 0)); second(s); s.receive(claim(friend, 0)) },
			"5000 announce, 6000 probe, 6000 announce", Holding, friend,
		},
		"goes on by another epoch": {
			func(s *script) { s.hold(7) }, "5000 announce", Holding, MAC{},
		},
		"looks for others seldom": {
			func(s *script) { s.pass(2 * time.Minute) },
			"27240 probe, 53020 probe, 78790 probe, 104560 probe", Holding,
			MAC{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := held(t)
			c.run(s)
			s.expect(c.said)
			s.phase(c.end, c.by)
		})
	}
}

func TestDoubt(t *testing.T) {
	t.Run("looks for others often", func(t *testing.T) {
		s := held(t)
		s.set(doubt(true))
		s.pass(1500 * time.Millisecond)
		s.phase(Holding, MAC{})
		s.expect("5420 probe, 5920 probe, 6420 probe")
		s.set(doubt(false))
		s.pass(10 * time.Second)
		s.expect("")
	})
	for name, c := range map[string]struct {
		claim Message
		want  Phase
		by    MAC
	}{
		"a stranger":            {claim(stranger, 0), Yielded, stranger},
		"a friend":              {claim(friend, 0), Yielded, friend},
		"a newer one":           {claim(tagger, 6), Yielded, tagger},
		"one of the same epoch": {claim(tagger, 5), Yielded, tagger},
		"an older one":          {claim(tagger, 4), Holding, MAC{}},
		"itself":                {claim(ownMAC, 6), Holding, MAC{}},
		"one who only asks":     {request, Holding, MAC{}},
		"one who wants it":      {dadOf(friend), Holding, MAC{}},
	} {
		t.Run("hears "+name, func(t *testing.T) {
			s := held(t)
			s.set(doubt(true))
			s.receive(c.claim)
			s.phase(c.want, c.by)
		})
	}
}

func TestYielded(t *testing.T) {
	yielded := func(t *testing.T, m Message) *script {
		s := held(t)
		s.set(doubt(true))
		s.receive(m)
		s.phase(Yielded, m.Claimant)
		s.takeOutput()
		return s
	}
	t.Run("answers nobody and looks", func(t *testing.T) {
		s := yielded(t, claim(tagger, 6))
		s.receive(request)
		s.pass(time.Second)
		s.expect("5500 probe, 6000 probe")
	})
	t.Run("for as long as it is claimed", func(t *testing.T) {
		s := yielded(t, claim(tagger, 6))
		for range 20 {
			s.pass(time.Second)
			s.receive(claim(tagger, 6))
		}
		s.phase(Yielded, tagger)
		s.pass(3 * time.Second)
		s.phase(Holding, MAC{})
	})
	t.Run("until an older one claims it", func(t *testing.T) {
		s := yielded(t, claim(friend, 0))
		s.receive(claim(tagger, 4))
		s.phase(Holding, MAC{})
	})
	t.Run("but not while there is a newer one", func(t *testing.T) {
		s := yielded(t, claim(friend, 6))
		s.receive(claim(tagger, 4))
		s.phase(Yielded, tagger)
	})
	t.Run("until the ledger says it is ours", func(t *testing.T) {
		s := yielded(t, claim(friend, 0))
		s.set(doubt(false))
		s.pass(time.Millisecond)
		s.receive(claim(friend, 0))
		s.phase(Holding, MAC{})
		s.expect("5000 probe, 5000 announce")
	})
	t.Run("not by a ledger that is older", func(t *testing.T) {
		s := yielded(t, claim(tagger, 7))
		s.set(doubt(false))
		s.hold(6)
		s.pass(time.Millisecond)
		s.receive(claim(tagger, 7))
		s.phase(Yielded, tagger)
	})
	t.Run("until another one is to hold it", func(t *testing.T) {
		s := yielded(t, claim(tagger, 6))
		s.set(elsewhere)
		s.none()
	})
}

func TestLeaving(t *testing.T) {
	leaving := func(t *testing.T) *script {
		s := held(t)
		s.set(elsewhere)
		s.phase(Leaving, MAC{})
		return s
	}
	t.Run("answers until the next one is heard", func(t *testing.T) {
		s := leaving(t)
		s.pass(time.Second)
		s.receive(dadOf(tagger))
		s.receive(request)
		s.expect("5000 probe, 6000 answer :03, 6000 answer :08")
		s.receive(claim(tagger, 6))
		s.receive(request)
		s.expect("")
		s.none()
	})
	t.Run("until the next one, whose agent is being replaced, is there", func(t *testing.T) {
		s := leaving(t)
		s.pass(10 * time.Second)
		s.receive(request)
		s.receive(dadOf(tagger))
		s.expect("5000 probe, 15000 answer :08, 15000 answer :03")
		s.receive(claim(tagger, 6))
		s.none()
	})
	t.Run("for fifteen seconds", func(t *testing.T) {
		s := leaving(t)
		s.pass(14999 * time.Millisecond)
		s.receive(request)
		s.pass(time.Millisecond)
		s.receive(request)
		s.expect("5000 probe, 20000 answer :08")
		s.none()
	})
	t.Run("and comes back", func(t *testing.T) {
		s := leaving(t)
		s.hold(7)
		s.receive(request)
		s.expect("5000 announce, 5000 answer :08")
		s.phase(Holding, MAC{})
	})
	t.Run("not where nobody wants it", func(t *testing.T) {
		s := held(t)
		s.set(gone)
		s.receive(request)
		s.expect("")
		s.none()
	})
	t.Run("and then nobody wants it", func(t *testing.T) {
		s := leaving(t)
		s.set(gone)
		s.receive(request)
		s.expect("")
		s.none()
	})
}

func TestLinks(t *testing.T) {
	other := uplink
	other.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 5}
	wide := Link{Name: "up1", Index: 3, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 6}, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.0.0/16")}}
	t.Run("another hardware address", func(t *testing.T) {
		s := held(t)
		s.set(links(other))
		s.expect("5000 announce")
		s.pass(200 * time.Millisecond)
		s.expect("5200 announce")
	})
	t.Run("down and up", func(t *testing.T) {
		s := held(t)
		s.set(links())
		s.receive(request)
		s.phase(OffSegment, MAC{})
		s.set(links(uplink))
		s.pass(100 * time.Millisecond)
		s.expect("5000 probe, 5050 announce")
		s.phase(Holding, MAC{})
	})
	t.Run("down while it leaves", func(t *testing.T) {
		s := held(t)
		s.set(elsewhere, links())
		s.receive(request)
		s.expect("")
		s.none()
	})
	t.Run("the one with the longest prefix", func(t *testing.T) {
		s := held(t)
		s.set(links(wide, uplink))
		if got := s.p.states()[0].Link; got != "up0" {
			t.Errorf("held on %s", got)
		}
		s.set(links(wide))
		if got := s.p.states()[0].Link; got != "up1" {
			t.Errorf("held on %s", got)
		}
		s.receive(request) // on the former link: no reply
		s.pass(100 * time.Millisecond)
		s.expect("5000 probe, 5050 announce")
	})
	t.Run("its wire fails and is back", func(t *testing.T) {
		s := held(t)
		key := keyOf(uplink, address4)
		s.p.failed(s.now, key, "no such device")
		s.receive(request)
		s.receive(claim(stranger, 0))
		s.pass(time.Minute)
		s.expect("")
		if got := s.p.states()[0]; got.Phase != Probing || got.Trouble != "no such device" {
			t.Errorf("%+v", got)
		}
		s.p.opened(s.now, key)
		s.pass(100 * time.Millisecond)
		s.expect("65000 probe, 65050 announce")
	})
}

func TestAnswerOn(t *testing.T) {
	public := Link{Name: "up0", Index: 2, MAC: uplink.MAC} // no prefix
	s := newScript(t)
	on := func(d *Desired) { d.ReplyOn = "up0" }
	s.hold(1, on, links(public), doubt(true))
	s.receive(request)
	s.expect("0 answer :08")
	s.receive(claim(stranger, 0))
	s.receive(claim(tagger, 9))
	s.set(doubt(false))
	s.hold(2, on)
	s.pass(time.Hour)
	s.expect("")
	s.phase(Holding, MAC{})
	s.set(links())
	s.receive(request)
	s.phase(OffSegment, MAC{})
	s.set(links(public))
	s.receive(request)
	s.expect("3600000 answer :08")
	s.set(gone)
	s.receive(request)
	s.expect("")
	s.none()
}

func TestReport(t *testing.T) {
	held, problems := Report([]State{
		{Address: address4, Epoch: 3, Phase: Holding},
		{Address: address4.Next(), Epoch: 4, Phase: Holding, By: stranger, Link: "up0"},
		{Address: address4, Epoch: 5, Phase: Holding, Young: true},
		{Address: address4, Phase: Refused, By: stranger, Link: "up0"},
		{Address: address4, Phase: Yielded, By: friend, Friend: true, Link: "up0"},
		{Address: address4, Phase: OffSegment},
		{Address: address4, Phase: Probing, Link: "up0"},
		{Address: address4, Phase: Probing, Link: "up0", Trouble: "no such device"},
		{Address: address4, Phase: Leaving, Link: "up0"},
	})
	if got, want := fmt.Sprint(held), "[{192.0.2.10 3 false} {192.0.2.11 4 false} {192.0.2.10 5 true}]"; got != want {
		t.Errorf("held %s, want %s", got, want)
	}
	var reasons []string
	for _, p := range problems {
		reasons = append(reasons, fmt.Sprint(p.Address, " ", p.Reason, " ", p.By))
	}
	if got, want := fmt.Sprint(reasons), "[192.0.2.11 AddressInUse 02:00:00:00:00:09 192.0.2.10 AddressInUse 02:00:00:00:00:09 192.0.2.10 AddressOffSegment  192.0.2.10 AddressNotHeld ]"; got != want {
		t.Errorf("problems %s, want %s", got, want)
	}
}
