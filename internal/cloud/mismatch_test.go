package cloud_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// reported returns an InstancesV2 as in underlay-ccm, with its Events.
func reported(
	v2 cloudprovider.InstancesV2, nodes ...runtime.Object,
) (cloud.Mismatches, *record.FakeRecorder) {
	recorder := record.NewFakeRecorder(10)
	return cloud.Mismatches{InstancesV2: v2, Client: fake.NewClientset(nodes...), Recorder: recorder},
		recorder
}

// A Node has a condition with the address that its kubelet should not have, and one when it is
// corrected. The condition is written when it changes.
func TestAMismatchIsACondition(t *testing.T) {
	metal := newMetal()
	n := metalNode("rack-7", "", "192.0.2.70")
	m, _ := reported(metal, n)
	client := m.Client.(*fake.Clientset)
	look := func(nodeIP string) (condition string) {
		t.Helper()
		live, err := client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		live.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: nodeIP}
		_, err = m.InstanceMetadata(t.Context(), live)
		if (err == nil) != (nodeIP == "192.0.2.7") {
			t.Fatalf("%s: %v", nodeIP, err)
		}
		if live, err = client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		c := kube.Condition(live, kube.AddressesMatch)
		if c == nil {
			return "none"
		}
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
	for _, step := range []struct{ nodeIP, want string }{
		{"192.0.2.7", "none"},
		{"192.0.2.70", "False AddressMismatch node rack-7: the kubelet's --node-ip is not an address of the machine: 192.0.2.70"},
		{"192.0.2.70", "False AddressMismatch node rack-7: the kubelet's --node-ip is not an address of the machine: 192.0.2.70"},
		{"192.0.2.71", "False AddressMismatch node rack-7: the kubelet's --node-ip is not an address of the machine: 192.0.2.71"},
		{"192.0.2.7", "True AddressesMatch"},
		{"192.0.2.7", "True AddressesMatch"},
	} {
		if got := look(step.nodeIP); !strings.HasPrefix(got, step.want) {
			t.Errorf("given %s: %q, want %q", step.nodeIP, got, step.want)
		}
	}
	patches := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 3 {
		t.Errorf("%d conditions were written, want 3", patches)
	}
}

// A failed write of the condition doesn't affect the result.
func TestAConditionThatIsNotWritten(t *testing.T) {
	n := metalNode("rack-7", "", "192.0.2.7")
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: kube.AddressesMatch, Status: corev1.ConditionFalse,
	})
	m, _ := reported(newMetal(), n)
	m.Client.(*fake.Clientset).PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	if got, err := m.InstanceMetadata(t.Context(), n); err != nil || got == nil {
		t.Errorf("%v, %v", got, err)
	}
}
