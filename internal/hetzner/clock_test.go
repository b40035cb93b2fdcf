package hetzner_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
)

// The API server's clock is ahead, so that a Node that just joined has a creation time in the
// future. One list after the first call for the Node is enough, not one for each call until the
// local clock has caught up, nor another one then.
func TestAClockThatIsAheadTakesNoMoreLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, network := project(t, hcloudsim.Options{AttachmentLimit: hcloudsim.Unlimited})
		seed(t, sim, network, 60)
		time.Sleep(time.Minute) // on the bubble's clock: none was created just now
		servers := c.Servers(network)
		list, err := servers.List(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: list[0].Name, CreationTimestamp: metav1.NewTime(time.Now().Add(3 * time.Minute)),
		}}
		before := requested(sim, "GET /v1/servers")
		machines := &cloud.Machines{Cloud: servers}
		instances := cloud.Instances{Machines: machines}
		for range 20 { // for four minutes
			node.Spec.ProviderID = ""
			if _, err := machines.Gateways(t.Context(), []*corev1.Node{node}, false); err != nil {
				t.Fatal(err)
			}
			node.Spec.ProviderID = list[0].ProviderID()
			if _, err := instances.InstanceMetadata(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			if _, _, err := machines.OwnPrefix(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			time.Sleep(12 * time.Second)
		}
		if pages := requested(sim, "GET /v1/servers") - before; pages != 1 {
			t.Errorf("%d requests, want the one that looks the server up", pages)
		}
	})
}
