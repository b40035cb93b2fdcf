package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const kubeletPolicy = "underlay-kubelet-addresses"

// kubeletsNameTheirMachine tests what a kubelet may write into its Node's addresses. Existing
// addresses of the Nodes were set by an administrator, as by a cloud.
func kubeletsNameTheirMachine(
	t *testing.T, cp *controlplane.ControlPlane, admin typedcorev1.NodeInterface,
) {
	many := make([]string, 256)
	for i := range many {
		many[i] = fmt.Sprintf("InternalIP 10.244.%d.1", i)
	}
	fromCloud := []string{"Hostname n1", "InternalIP 10.0.0.2", "InternalIP 10.1.0.2", "ExternalIP 192.0.2.7"}
	for name, tt := range map[string]struct {
		before, after []string
		refused       bool
	}{
		"one of each family":         {after: []string{"InternalIP 10.0.0.9", "InternalIP fd00::9", "Hostname n1"}},
		"another --node-ip":          {before: []string{"InternalIP 10.0.0.9"}, after: []string{"InternalIP 10.0.0.8"}},
		"what the cloud has set":     {before: fromCloud, after: fromCloud},
		"less than the cloud":        {before: fromCloud, after: fromCloud[:2]},
		"a name beside the cloud's":  {before: fromCloud, after: append(fromCloud, "InternalDNS n1.local")},
		"an ExternalIP":              {after: []string{"InternalIP 10.0.0.9", "ExternalIP 192.0.2.100"}, refused: true},
		"a second of one family":     {after: []string{"InternalIP 10.0.0.9", "InternalIP 10.0.0.8"}, refused: true},
		"one more beside the cloud":  {before: fromCloud, after: append(fromCloud, "InternalIP 10.0.0.8"), refused: true},
		"the cloud's in another way": {before: fromCloud, after: append(fromCloud, "ExternalIP 10.0.0.2"), refused: true},
		"hundreds":                   {after: many, refused: true},
	} {
		node := strings.ReplaceAll(strings.NewReplacer("'", "", "-", "").Replace(strings.ToLower(name)), " ", "-")
		kubelet := kubeletOf(t, cp, node)
		verdict := func(how string, err error) {
			t.Helper()
			if !tt.refused && err != nil {
				t.Errorf("%s: %s is refused: %v", name, how, err)
			}
			says := apierrors.IsForbidden(err) && strings.Contains(err.Error(), kubeletPolicy) &&
				strings.Contains(err.Error(), "--node-ip") && strings.Contains(err.Error(), "system:node:"+node)
			if tt.refused && !says {
				t.Errorf("%s: %s gives %v, want a refusal by %s that names the remedy", name, how, err, kubeletPolicy)
			}
		}
		if len(tt.before) == 0 {
			born := bare(node)
			born.Status.Addresses = nodeAddresses(tt.after)
			_, err := kubelet.Create(t.Context(), born, metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll},
			})
			verdict("a Node made with it", err)
		}
		register(t, admin, node)
		setAddresses(t, admin, node, tt.before)
		verdict("a change of its status", writeAddresses(t.Context(), kubelet, node, tt.after))
		if tt.refused {
			// Other clients that may change Nodes aren't affected: the cloud controller manager
			// sets the addresses of the cloud.
			setAddresses(t, admin, node, tt.after)
		}
	}
}

func nodeAddresses(written []string) (addresses []corev1.NodeAddress) {
	for _, w := range written {
		kind, address, _ := strings.Cut(w, " ")
		addresses = append(addresses, corev1.NodeAddress{
			Type: corev1.NodeAddressType(kind), Address: address,
		})
	}
	return addresses
}

func setAddresses(t *testing.T, as typedcorev1.NodeInterface, node string, written []string) {
	t.Helper()
	if err := writeAddresses(t.Context(), as, node, written); err != nil {
		t.Fatal(err)
	}
}

func writeAddresses(
	ctx context.Context, as typedcorev1.NodeInterface, node string, written []string,
) error {
	var parts []string
	for _, a := range nodeAddresses(written) {
		parts = append(parts, fmt.Sprintf(`{"type":%q,"address":%q}`, a.Type, a.Address))
	}
	body := fmt.Sprintf(`{"status":{"addresses":[%s]}}`, strings.Join(parts, ","))
	return patch(ctx, as, node, types.MergePatchType, body, "status")
}
