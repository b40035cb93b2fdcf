package lb_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// Each load balancer rejects as targets the Nodes whose servers are not in the network. That costs
// few requests, and an attachment that the server list or the Node shows takes effect within 30 s.
func TestRefusedTargetsCostLittle(t *testing.T) {
	const services, unattached, limit = 10, 5, 60
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, realistic())
		w.addNode("node-0")
		w.start()
		for i := range services {
			w.addService(fmt.Sprint("web-", i))
		}
		settle := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		settle(time.Minute)
		w.spent()

		var outside []int64
		for i := range unattached {
			server, err := w.sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("outside-", i)})
			w.must(err)
			outside = append(outside, server.ID)
			_, err = w.api.CoreV1().Nodes().Create(w.ctx, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: server.Name}, Spec: corev1.NodeSpec{ProviderID: fmt.Sprint("hcloud://", server.ID)},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			}, metav1.CreateOptions{})
			w.must(err)
		}
		for hour := range 10 {
			settle(time.Hour)
			c := w.spent()
			t.Logf("hour %d: %+v", hour, c)
			if c.all() > limit {
				t.Errorf("hour %d: %d requests, at most %d: %+v", hour, c.all(), limit, c)
			}
		}

		w.attach(outside[0])
		_, err := w.servers.List(w.ctx, time.Now()) // as the route controller does
		w.must(err)
		settle(30 * time.Second)
		w.attach(outside[1])
		n, err := w.api.CoreV1().Nodes().Get(w.ctx, "outside-1", metav1.GetOptions{})
		w.must(err)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.99"}}
		_, err = w.api.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
		w.must(err)
		settle(30 * time.Second)
		for _, b := range w.sim.LoadBalancers() {
			if len(b.Targets) != 3 {
				t.Errorf("%s has %d targets, want 3", b.Name, len(b.Targets))
			}
		}
		w.stop()
	})
}

// attach puts a server into the network.
func (w *world) attach(server int64) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.ctx, http.MethodPost,
		fmt.Sprintf("http://cloud.invalid/v1/servers/%d/actions/attach_to_network", server), strings.NewReader(fmt.Sprintf(`{"network":%d}`, w.seeded)))
	w.must(err)
	request.Header.Set("Authorization", "Bearer bench")
	answer, err := w.sim.Transport().RoundTrip(request)
	w.must(err)
	if answer.StatusCode != http.StatusCreated {
		w.t.Fatalf("attaching: %s", answer.Status)
	}
	w.must(answer.Body.Close())
	time.Sleep(time.Second) // until the action has ended
}
