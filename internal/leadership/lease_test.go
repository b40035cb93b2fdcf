package leadership_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/leadership"
)

const namespace, name = "kube-system", "cloud-controller-manager"

func lease(holder string) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now())
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15),
			AcquireTime: &now, RenewTime: &now, LeaseTransitions: ptr.To[int32](4),
		},
	}
}

func TestReleaseGivesBackTheOwnLease(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct{ first, last, want string }{
		"still held":            {first: "control-1_a", last: "control-1_a", want: ""},
		"lost meanwhile":        {first: "control-1_a", last: "control-2_b", want: "control-2_b"},
		"lost on the same host": {first: "control-1_a", last: "control-1_c", want: "control-1_c"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(lease(tt.first))
			leases := client.CoordinationV1().Leases(namespace)
			held, err := leadership.Held(t.Context(), client.CoordinationV1(), namespace, name, "control-1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := leases.Update(t.Context(), lease(tt.last), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := held.Check(t.Context()); (err == nil) != (tt.first == tt.last) {
				t.Errorf("the check returned %v", err)
			}
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := leases.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if holder := ptr.Deref(got.Spec.HolderIdentity, ""); holder != tt.want {
				t.Errorf("the holder is %q, want %q", holder, tt.want)
			}
			if n := ptr.Deref(got.Spec.LeaseTransitions, 0); n != 4 {
				t.Errorf("%d transitions, want 4 as before: they tell whether there was another leader", n)
			}
		})
	}
}

func TestHeldRefusesALeaseOfAnotherHost(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(lease("control-10_a"))
	if held, err := leadership.Held(t.Context(), client.CoordinationV1(), namespace, name, "control-1"); err == nil {
		t.Errorf("got %v, want an error: control-10 has the lease", held)
	}
}
