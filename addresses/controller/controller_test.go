package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestServicesGetAddresses(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.node("b")
		w.start()
		w.service("one")
		w.service("two", dualStack)
		w.settle()
		w.has("one", "192.0.2.1")
		w.has("two", "192.0.2.2, 2001:db8::1")
		w.expectCondition("two", "True Accepted", "")
		if w.holder("one") == w.holder("two") || len(w.events.of("one Normal AddressAssigned")) != 1 {
			t.Errorf("holders %s and %s, events %q", w.holder("one"), w.holder("two"), w.events.of(""))
		}
		if n := w.metric("pool_used", "pool", "segment", "family", "ipv4"); n != 2 {
			t.Errorf("%v addresses used", n)
		}
		if n := w.metric("pool_size", "pool", "segment", "family", "ipv6"); n != 4 {
			t.Errorf("the pool has %v IPv6 addresses", n)
		}
	})
}

// At rest nothing is written, and a restart changes nothing either.
func TestNothingIsWrittenAtRest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one", dualStack)
		w.settle()
		w.api.written()
		w.after(time.Hour)
		w.editNode("a", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime.Time = time.Now() })
		w.after(time.Hour)
		w.kill()
		w.start()
		w.after(time.Minute)
		if n := w.api.written(); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestWhoseServices(t *testing.T) {
	other := "example.com/other"
	for name, c := range map[string]struct {
		change    func(*corev1.Service)
		configure func(*Config)
		want      string
	}{
		"our class":             {func(*corev1.Service) {}, nil, "192.0.2.1"},
		"another class":         {func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = &other }, nil, ""},
		"no class":              {func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = nil }, nil, "192.0.2.1"},
		"no class, not for us":  {func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = nil }, func(c *Config) { c.Classless = false }, ""},
		"of another type":       {func(svc *corev1.Service) { svc.Spec.Type, svc.Spec.LoadBalancerClass = "NodePort", nil }, nil, ""},
		"had a cloud's":         {finalized, func(c *Config) { c.Balancers = true }, ""},
		"had another's address": {finalized, nil, "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.node("a")
				if c.configure == nil {
					c.configure = func(*Config) {}
				}
				w.start(c.configure)
				w.service("one", c.change)
				w.settle()
				w.has("one", c.want)
			})
		})
	}
}

func finalized(svc *corev1.Service) {
	svc.Spec.LoadBalancerClass = nil
	svc.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
}

// A Service without a class keeps its addresses when the configuration excludes such Services, and
// releases them when it is deleted.
func TestASettingTakesNoAddressAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one", func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = nil })
		w.settle()
		w.kill()
		w.start(func(c *Config) { c.Classless = false })
		w.has("one", "192.0.2.1")
		w.api.remove("services", "one")
		w.settle()
		if e := w.api.ledger().Entries(); len(e) != 1 || len(e[0].Shares) > 0 || e[0].Holder != "" {
			t.Errorf("entries %+v", e)
		}
	})
}

func TestRequestsOfAService(t *testing.T) {
	both := func(fs ...func(*corev1.Service)) func(*corev1.Service) {
		return func(svc *corev1.Service) {
			for _, f := range fs {
				f(svc)
			}
		}
	}
	ip := func(text string) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.LoadBalancerIP = text }
	}
	for name, c := range map[string]struct {
		change          func(*corev1.Service)
		has, says, part string
	}{
		"an address":                          {annotated("underlay.dev/addresses", "192.0.2.3"), "192.0.2.3", "True Accepted", ""},
		"one of each family":                  {both(dualStack, annotated("underlay.dev/addresses", "2001:db8::3, 192.0.2.3")), "192.0.2.3, 2001:db8::3", "True Accepted", ""},
		"by the field":                        {ip("192.0.2.4"), "192.0.2.4", "True Accepted", ""},
		"the annotation first":                {both(ip("192.0.2.4"), annotated("underlay.dev/addresses", "192.0.2.3")), "192.0.2.3", "True Accepted", ""},
		"as with MetalLB":                     {annotated("metallb.io/loadBalancerIPs", "192.0.2.3"), "192.0.2.3", "True Accepted", ""},
		"as with old MetalLB":                 {annotated("metallb.universe.tf/loadBalancerIPs", "192.0.2.3"), "192.0.2.3", "True Accepted", ""},
		"as with kube-vip":                    {annotated("kube-vip.io/loadbalancerIPs", "192.0.2.3"), "192.0.2.3", "True Accepted", ""},
		"the field and kube-vip's annotation": {both(requiresBoth, ip("192.0.2.3"), annotated("kube-vip.io/loadbalancerIPs", "192.0.2.3,2001:db8::3")), "192.0.2.3, 2001:db8::3", "True Accepted", ""},
		"a second family by another's":        {both(dualStack, annotated("underlay.dev/addresses", "192.0.2.3"), annotated("metallb.io/loadBalancerIPs", "192.0.2.4,2001:db8::3")), "192.0.2.3, 2001:db8::3", "True Accepted", ""},
		"kube-vip's any in the field":         {both(ip("0.0.0.0"), annotated("kube-vip.io/loadbalancerIPs", "192.0.2.3")), "192.0.2.3", "True Accepted", ""},
		"outside by the second":               {both(requiresBoth, ip("192.0.2.3"), annotated("kube-vip.io/loadbalancerIPs", "192.0.2.3,2001:db8:9::3")), "", "False AddressOutsidePools", `kube-vip.io/loadbalancerIPs="2001:db8:9::3"`},
		"kube-vip's any":                      {ip("0.0.0.0"), "192.0.2.1", "True Accepted", ""},
		"a pool":                              {annotated("underlay.dev/address-pool", "asked"), "198.51.100.1", "True Accepted", ""},
		"a pool of MetalLB's":                 {annotated("metallb.universe.tf/address-pool", "asked"), "198.51.100.1", "True Accepted", ""},
		"a pool by its address":               {annotated("underlay.dev/addresses", "198.51.100.2"), "198.51.100.2", "True Accepted", ""},
		"nonsense":                            {annotated("underlay.dev/addresses", "web"), "", "False InvalidField", `underlay.dev/addresses="web"`},
		"another family":                      {annotated("underlay.dev/addresses", "2001:db8::3"), "", "False InvalidField", "spec.ipFamilies"},
		"two of a family":                     {annotated("underlay.dev/addresses", "192.0.2.3,192.0.2.4"), "", "False InvalidField", `"192.0.2.4"`},
		"any of ours":                         {annotated("underlay.dev/addresses", "0.0.0.0"), "", "False AddressOutsidePools", "no pool"},
		"outside":                             {ip("203.0.113.7"), "", "False AddressOutsidePools", `spec.loadBalancerIP="203.0.113.7"`},
		"MetalLB's key misspelled":            {annotated("metallb.universe.tf/allow-shared", "k"), "192.0.2.1", "True Accepted", "did you mean metallb.universe.tf/allow-shared-ip?"},
		"MetalLB's addresses misspelled":      {annotated("metallb.io/loadbalancerIPs", "192.0.2.3"), "192.0.2.1", "True Accepted", "did you mean metallb.io/loadBalancerIPs?"},
		"ours misspelled":                     {annotated("underlay.dev/adresses", "192.0.2.3"), "192.0.2.1", "True Accepted", "did you mean underlay.dev/addresses?"},
		"a prefix misspelled":                 {annotated("kubevip.io/loadbalancerIPs", "192.0.2.3"), "192.0.2.1", "True Accepted", "did you mean kube-vip.io/loadbalancerIPs?"},
		"misspelled beside nonsense":          {both(annotated("underlay.dev/adresses", "192.0.2.3"), annotated("underlay.dev/addresses", "web")), "", "False InvalidField", "did you mean underlay.dev/addresses?"},
		"others' annotations":                 {both(annotated("metallb.io/ip-allocated-from-pool", "x"), annotated("kube-vip.io/vipHost", "x"), annotated("underlay.dev/shared", "x")), "192.0.2.1", "True Accepted", "has the addresses"},
		"no such pool":                        {annotated("metallb.io/address-pool", "gold"), "", "False NoAddressPool", `metallb.io/address-pool="gold"`},
		"others' pool":                        {annotated("underlay.dev/address-pool", "closed"), "", "False NoAddressPool", "namespaceSelector"},
		"taken":                               {annotated("underlay.dev/addresses", "192.0.2.2"), "", "False AddressTaken", "shop/there"},
		"shared":                              {both(onPort(81), annotated("underlay.dev/address-sharing-key", "k"), annotated("underlay.dev/addresses", "192.0.2.2")), "192.0.2.2", "True Accepted", ""},
		"shared as MetalLB's":                 {both(onPort(81), annotated("metallb.io/allow-shared-ip", "k")), "192.0.2.2", "True Accepted", ""},
		"a port that is shared":               {both(annotated("underlay.dev/address-sharing-key", "k"), annotated("underlay.dev/addresses", "192.0.2.2")), "", "False AddressPortTaken", "80/TCP"},
		"both or none":                        {both(requiresBoth, annotated("underlay.dev/address-pool", "asked")), "", "False NoAddressPool", "IPv6"},
		"both preferred":                      {both(dualStack, annotated("underlay.dev/address-pool", "asked")), "198.51.100.1", "True Accepted", "IPv6"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.node("a")
				w.service("there", annotated("underlay.dev/address-sharing-key", "k"), annotated("underlay.dev/addresses", "192.0.2.2"))
				w.start(func(c *Config) {
					request, closed := poolNamed("asked", "198.51.100.1-198.51.100.2"), poolNamed("closed", "198.51.100.9")
					request.OnRequest, closed.OnRequest = true, true
					request.Namespaces, closed.Namespaces = mustSelect("team=web"), mustSelect("team=other")
					c.Pools = append(c.Pools, request, closed)
				})
				w.service("one", c.change)
				w.settle()
				w.has("one", c.has)
				w.expectCondition("one", c.says, c.part)
				warnings := w.events.of("one Warning")
				want := strings.Count(c.part, "did you mean")
				if strings.HasPrefix(c.says, "False") {
					want++
				}
				if len(warnings) != want {
					t.Errorf("events %q", warnings)
				}
				w.after(time.Hour)
				if again := w.events.of("one Warning"); len(again) != len(warnings) {
					t.Errorf("said again: %q", again)
				}
			})
		})
	}
}
