package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNewest(t *testing.T) {
	at := func(uid, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid), ResourceVersion: version}}
	}
	for _, c := range []struct {
		name          string
		wrote, cached *corev1.Service
		ours          bool // what our write returned is the newer one
	}{
		{"the cache lags behind", at("a", "10"), at("a", "9"), true},
		{"the cache has our write", at("a", "10"), at("a", "10"), false},
		{"the cache has more", at("a", "9"), at("a", "10"), false},
		{"another Service of the name", at("a", "10"), at("b", "9"), false},
		{"versions that cannot be compared", at("a", "x"), at("a", "9"), false},
		{"nothing written", nil, at("a", "9"), false},
	} {
		n := newNewest()
		if c.wrote != nil {
			n.wrote(c.wrote)
		}
		if got := n.of(c.cached); (got == c.wrote) != c.ours || (got == c.cached) == c.ours {
			t.Errorf("%s: got version %s of %s", c.name, got.ResourceVersion, got.UID)
		}
		if !c.ours && len(n.byName) != 0 {
			t.Errorf("%s: still remembered", c.name)
		}
		n.forget(nameOf(c.cached))
		if got := n.of(c.cached); got != c.cached {
			t.Errorf("%s: forgotten, yet got version %s", c.name, got.ResourceVersion)
		}
	}
}
