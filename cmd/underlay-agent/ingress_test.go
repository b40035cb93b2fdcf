//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// The filter allows each source of a Service to reach each of its endpoints, and no endpoints of
// others.
func TestOpeningsAreServiceByService(t *testing.T) {
	one, err := podingress.Parse(`{"from":["2001:db8:f::1/128","2001:db8:e::/48"],"to":["[2001:db8:1::7]:80","[2001:db8:1::8]:81"]}`)
	if err != nil {
		t.Fatal(err)
	}
	two, err := podingress.Parse(`{"from":["2001:db8:f::2/128"],"to":["[2001:db8:1::9]:80"]}`)
	if err != nil {
		t.Fatal(err)
	}
	v := agent.View{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/80")}, Ingress: []podingress.Ingress{one, two}}
	var got []string
	for _, o := range defaults().filterFor(v).Openings {
		got = append(got, fmt.Sprintf("%s to %s", o.From, o.To))
	}
	want := "2001:db8:f::1/128 to [2001:db8:1::7]:80, 2001:db8:f::1/128 to [2001:db8:1::8]:81, " +
		"2001:db8:e::/48 to [2001:db8:1::7]:80, 2001:db8:e::/48 to [2001:db8:1::8]:81, 2001:db8:f::2/128 to [2001:db8:1::9]:80"
	if strings.Join(got, ", ") != want {
		t.Errorf("open are %s, want %s", got, want)
	}
	var out strings.Builder
	printIngress(&out, v)
	shown := "open to load balancers: [[2001:db8:1::7]:80 [2001:db8:1::8]:81] from [2001:db8:f::1/128 2001:db8:e::/48]\n" +
		"open to load balancers: [[2001:db8:1::9]:80] from [2001:db8:f::2/128]\n"
	if out.String() != shown {
		t.Errorf("shown is %q, want %q", &out, shown)
	}
}
