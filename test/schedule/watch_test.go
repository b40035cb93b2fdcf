package schedule

import (
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

// RoundTrip serves a request of a manager.
func (a *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		c, _, _ := a.find(req.URL.Path)
		return a.Watch(req, c.Collection), nil
	}
	body, err := fakeapi.ReadBody(req)
	if err != nil {
		return nil, err
	}
	return fakeapi.Reply(a.handle(req, body))
}

func isWatch(req *http.Request) bool {
	watching, _ := strconv.ParseBool(req.URL.Query().Get("watch"))
	return watching
}

// stall stops watches and cached lists from advancing, until resume.
func (a *apiServer) stall() {
	a.Lock()
	defer a.Unlock()
	a.Stall()
}

func (a *apiServer) resume() {
	a.Lock()
	defer a.Unlock()
	a.Resume()
}

// register creates a Node, as its kubelet does.
func (a *apiServer) register(node *corev1.Node) {
	a.Lock()
	defer a.Unlock()
	a.meet(node)
	a.put(a.nodes, watch.Added, node, false)
}

// edit changes an existing Node as a client other than a manager.
func (a *apiServer) edit(name string, change func(*corev1.Node)) {
	a.Lock()
	defer a.Unlock()
	if node, ok := a.nodes.Objects[name].(*corev1.Node); ok {
		node = node.DeepCopy()
		change(node)
		a.put(a.nodes, watch.Modified, node, false)
	}
}

// remove deletes an existing Node.
func (a *apiServer) remove(name string) {
	a.Lock()
	defer a.Unlock()
	if node, ok := a.nodes.Objects[name].(*corev1.Node); ok {
		a.put(a.nodes, watch.Deleted, node.DeepCopy(), false)
	}
}

// data returns the content of a ConfigMap.
func (a *apiServer) data(name string) map[string]string {
	a.Lock()
	defer a.Unlock()
	if m, ok := a.maps.Objects[name].(*corev1.ConfigMap); ok {
		return m.Data
	}
	return nil
}
