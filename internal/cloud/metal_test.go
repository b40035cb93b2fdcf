package cloud_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// metalNode is a Node as its kubelet registers it.
func metalNode(name, providerID, nodeIP string, reported ...corev1.NodeAddress) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{
			Addresses: append(reported, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name}),
		},
	}
	if nodeIP != "" {
		n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: nodeIP}
	}
	return n
}

func internalIP(text string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text}
}

func newMetal() *cloud.Metal {
	return cloud.NewMetal([]cloud.Machine{
		{Name: "rack-7", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, Zone: "hall-1", Region: "berlin", Type: "ex44"},
		{Name: "rack-8", Zone: "hall-2"},
	})
}

func TestMetalDescribesEveryNode(t *testing.T) {
	external := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.5"}
	host := func(name string, more ...corev1.NodeAddress) []corev1.NodeAddress {
		return append([]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}, more...)
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		want cloudprovider.InstanceMetadata
	}{
		"of the inventory": {metalNode("rack-7", "", "192.0.2.7"), cloudprovider.InstanceMetadata{
			ProviderID: "underlay://rack-7", Zone: "hall-1", Region: "berlin", InstanceType: "ex44",
			NodeAddresses: host("rack-7", internalIP("192.0.2.7"), internalIP("2001:db8::7")),
		}},
		"of the inventory by provider ID": {metalNode("other", "underlay://rack-7", ""), cloudprovider.InstanceMetadata{
			ProviderID: "underlay://rack-7", Zone: "hall-1", Region: "berlin", InstanceType: "ex44",
			NodeAddresses: host("other", internalIP("192.0.2.7"), internalIP("2001:db8::7")),
		}},
		"of the inventory, by the kubelet's addresses": {metalNode("rack-8", "", "192.0.2.8"), cloudprovider.InstanceMetadata{
			ProviderID: "underlay://rack-8", Zone: "hall-2", NodeAddresses: host("rack-8", internalIP("192.0.2.8")),
		}},
		"of no inventory": {metalNode("x", "", "192.0.2.9,2001:db8::9", internalIP("192.0.2.9"), external), cloudprovider.InstanceMetadata{
			ProviderID: "underlay://x", NodeAddresses: host("x", internalIP("192.0.2.9"), internalIP("2001:db8::9"), external),
		}},
		"without --node-ip": {metalNode("x", "", "", internalIP("192.0.2.9")), cloudprovider.InstanceMetadata{
			ProviderID: "underlay://x", NodeAddresses: host("x", internalIP("192.0.2.9")),
		}},
		"with a provider ID of somebody's": {metalNode("x", "metal3://1/2/3", "192.0.2.9"), cloudprovider.InstanceMetadata{
			ProviderID: "metal3://1/2/3", NodeAddresses: host("x", internalIP("192.0.2.9")),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			metal := newMetal()
			got, err := metal.InstanceMetadata(t.Context(), test.node)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			// The result becomes the Node's status, and is returned again.
			test.node.Status.Addresses = got.NodeAddresses
			test.node.Spec.ProviderID = got.ProviderID
			if again, err := metal.InstanceMetadata(t.Context(), test.node); err != nil ||
				!cmp.Equal(got, again) {
				t.Errorf("the second time %+v, %v", again, err)
			}
		})
	}
}

func TestMetalGuessesNoAddress(t *testing.T) {
	for name, test := range map[string]struct {
		node  *corev1.Node
		says  string
		event bool
	}{
		"none anywhere":                {metalNode("x", "", ""), "--node-ip", false},
		"none that is one":             {metalNode("x", "", "0.0.0.0"), "--node-ip", false},
		"another than the kubelet has": {metalNode("rack-7", "", "192.0.2.70"), "192.0.2.70 is not among", true},
	} {
		metal, recorder := reported(newMetal(), test.node)
		got, err := metal.InstanceMetadata(t.Context(), test.node)
		if err == nil || !strings.Contains(err.Error(), test.says) ||
			!strings.Contains(err.Error(), test.node.Name) {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, test.says)
		}
		if (len(recorder.Events) == 1) != test.event {
			t.Errorf("%s: %d Events", name, len(recorder.Events))
		}
	}
}

func TestMetalDeclaresNoMachineAbsent(t *testing.T) {
	metal := newMetal()
	for _, id := range []string{"", "underlay://rack-7", "underlay://gone", "hcloud://1", "hrobot://7", "nonsense"} {
		node := metalNode("x", id, "")
		if exists, err := metal.InstanceExists(t.Context(), node); !exists || err != nil {
			t.Errorf("%q: exists %t, %v", id, exists, err)
		}
		if down, err := metal.InstanceShutdown(t.Context(), node); down || err != nil {
			t.Errorf("%q: shut down %t, %v", id, down, err)
		}
	}
	provider := cloud.Provider{Name: "underlay", V2: metal}
	if v2, ok := provider.InstancesV2(); v2 != metal || !ok || provider.ProviderName() != "underlay" {
		t.Errorf("provider %s answers with %v", provider.ProviderName(), v2)
	}
	if _, ok := provider.LoadBalancer(); ok {
		t.Error("it has load balancers")
	}
	if _, ok := provider.Routes(); ok {
		t.Error("it has routes")
	}
}
