package schedule

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// RoundTrip answers a request of a manager.
func (a *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		return a.watch(req), nil
	}
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	return reply(a.handle(req, body))
}

func isWatch(req *http.Request) bool {
	watching, _ := strconv.ParseBool(req.URL.Query().Get("watch"))
	return watching
}

func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// watch streams every version after the one that was asked for, each as late as lag says.
func (a *apiServer) watch(req *http.Request) *http.Response {
	c, _, _ := a.find(req.URL.Path)
	query := req.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	reader, writer := io.Pipe()
	go func() {
		defer writer.Close()
		stream := json.NewEncoder(writer)
		if initial {
			if from = a.sendAll(stream, c); from < 0 {
				return
			}
		}
		a.follow(req, stream, c, max(from, 1))
	}()
	return response(http.StatusOK, reader)
}

// sendAll streams all objects and the bookmark that ends them, and returns their resource version.
func (a *apiServer) sendAll(stream *json.Encoder, c *collection) int {
	a.mu.Lock()
	rv := len(c.history)
	if a.stalled != nil {
		rv = c.horizon
	}
	all := c.at(rv)
	a.mu.Unlock()
	for _, o := range all {
		if send(stream, watch.Added, o) != nil {
			return -1
		}
	}
	end := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: c.kind, APIVersion: c.apiVersion},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(rv), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
	if send(stream, watch.Bookmark, end) != nil {
		return -1
	}
	return rv
}

// follow streams versions until the watcher goes away or the stream breaks.
func (a *apiServer) follow(req *http.Request, stream *json.Encoder, c *collection, from int) {
	for {
		a.mu.Lock()
		var next *version
		block, delay := c.wake, time.Duration(0)
		switch {
		case a.stalled != nil && from >= c.horizon:
			block = a.stalled
		case from < len(c.history):
			next = &c.history[from]
			if a.lag != nil {
				delay = a.lag()
			}
		}
		a.mu.Unlock()
		if delay < 0 {
			return // the watcher comes back for the rest
		}
		if next == nil {
			select {
			case <-block:
				continue
			case <-req.Context().Done():
				return
			}
		}
		if !elapse(req.Context().Done(), delay) || send(stream, next.kind, next.object) != nil {
			return
		}
		from++
	}
}

// send writes one event. What is in the history never changes, so it needs no lock.
func send(stream *json.Encoder, kind watch.EventType, o object) error {
	return stream.Encode(map[string]any{"type": kind, "object": o})
}

// elapse waits and reports whether nothing ended it. It makes no timer for no time.
func elapse(ended <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
		return false
	}
}

// stall keeps watches and cached lists from learning anything more, until resume.
func (a *apiServer) stall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stalled == nil {
		a.stalled = newSignal()
		a.nodes.horizon, a.maps.horizon = len(a.nodes.history), len(a.maps.history)
	}
}

func (a *apiServer) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stalled != nil {
		close(a.stalled)
		a.stalled = nil
	}
}

// register creates a Node, as its kubelet does.
func (a *apiServer) register(node *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.meet(node)
	a.put(a.nodes, watch.Added, node, false)
}

// edit changes a Node that is there as somebody else than a manager does.
func (a *apiServer) edit(name string, change func(*corev1.Node)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if node, ok := a.nodes.objects[name].(*corev1.Node); ok {
		node = node.DeepCopy()
		change(node)
		a.put(a.nodes, watch.Modified, node, false)
	}
}

// remove deletes a Node that is there.
func (a *apiServer) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if node, ok := a.nodes.objects[name].(*corev1.Node); ok {
		a.put(a.nodes, watch.Deleted, node.DeepCopy(), false)
	}
}

// data is what a ConfigMap holds.
func (a *apiServer) data(name string) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m, ok := a.maps.objects[name].(*corev1.ConfigMap); ok {
		return m.Data
	}
	return nil
}
