package controller

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestAbsenceRequiresAnAPIServersResponseAboutThatNode(t *testing.T) {
	bare := &apierrors.StatusError{
		ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound},
	}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"not found", apierrors.NewNotFound(nodeResource, "a"), true},
		{"not found, wrapped", fmt.Errorf("reading: %w", apierrors.NewNotFound(nodeResource, "a")), true},
		{"another name", apierrors.NewNotFound(nodeResource, "b"), false},
		{"another resource", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a"), false},
		{"another group", apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: "nodes"}, "a"), false},
		{"no details", bare, false},
		{"a page", apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", nodeResource, "a", "404 page not found", 0, true), false},
		{"another status", apierrors.NewForbidden(nodeResource, "a", errConnection), false},
		{"no answer", errors.Join(errConnection), false},
	} {
		if got := kube.Absent(c.err, "nodes", "a"); got != c.want {
			t.Errorf("%s: Absent(%v) = %t", c.name, c.err, got)
		}
	}
}

// The reply to an applied PATCH is lost, and a proxy replies to the GET that should find out the
// outcome.
func TestAProxysNotFoundDoesNotFreeThePrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Second)
		api.inject(oneOf(
			first("PATCH nodes", fault{delay: time.Second, lose: true}),
			first("GET nodes", fault{page: true}, fault{page: true})))
		api.create("a")
		api.create("b")
		pass(0)
		api.stall()
		pass(time.Hour)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "b")
		p.wantMetric(t, "underlay_ipam_releases_total", 0)
	})
}
