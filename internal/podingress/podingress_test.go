package podingress_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/podingress"
)

func TestValueIsReadAsItWasWritten(t *testing.T) {
	in := podingress.Ingress{
		Sources:   []netip.Prefix{netip.MustParsePrefix("2001:db8:1::1/128")},
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::a]:8080"), netip.MustParseAddrPort("[2001:db8::b]:8080")},
	}
	out, err := podingress.Parse(in.String())
	if err != nil || !reflect.DeepEqual(in, out) {
		t.Fatalf("%s is read as %v, %v", in, out, err)
	}
}

func TestOrderMakesNoDifference(t *testing.T) {
	a, b := netip.MustParseAddrPort("[2001:db8::a]:8080"), netip.MustParseAddrPort("[2001:db8::b]:80")
	one := podingress.Ingress{Endpoints: []netip.AddrPort{a, b, a}}
	other := podingress.Ingress{Endpoints: []netip.AddrPort{b, a}}
	if one.String() != other.String() {
		t.Errorf("%s\n%s", one, other)
	}
	if want := []netip.AddrPort{a, b, a}; !reflect.DeepEqual(one.Endpoints, want) {
		t.Errorf("writing it changed it to %v", one.Endpoints)
	}
}

func TestUnreadableValues(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":            "2001:db8::1",
		"no prefix":          `{"from":["2001:db8::1"],"to":[]}`,
		"host bits":          `{"from":["2001:db8::1/64"],"to":[]}`,
		"endpoint no port":   `{"from":[],"to":["2001:db8::1"]}`,
		"endpoint port zero": `{"from":[],"to":["[2001:db8::1]:0"]}`,
		"empty source":       `{"from":[""],"to":[]}`,
	} {
		if got, err := podingress.Parse(value); err == nil || !strings.Contains(err.Error(), "load balancers") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestAnnotationNamesItsService(t *testing.T) {
	uid, ok := podingress.Service(podingress.Annotation("3f1a"))
	if uid != "3f1a" || !ok {
		t.Errorf("%q, %t", uid, ok)
	}
	if _, ok := podingress.Service("underlay.dev/health-check-state"); ok {
		t.Error("another annotation is taken for one of ours")
	}
}
