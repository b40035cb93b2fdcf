package controller

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watch streams every version after the one asked for, each as late as lag says.
func (f *fakeAPI) watch(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	reader, writer := io.Pipe()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	go func() {
		defer writer.Close()
		stream := json.NewEncoder(writer)
		if initial {
			if from = f.sendAll(stream); from < 0 {
				return
			}
		}
		f.follow(req, stream, from)
	}()
	return response(http.StatusOK, reader), nil
}

// sendAll streams all Nodes and the bookmark that ends them.
func (f *fakeAPI) sendAll(stream *json.Encoder) int {
	f.mu.Lock()
	rv := len(f.history)
	if f.stalled != nil {
		rv = f.horizon
	}
	nodes := f.at(rv)
	f.mu.Unlock()
	for _, node := range nodes {
		if send(stream, watch.Added, node) != nil {
			return -1
		}
	}
	end := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(max(rv, 1)),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	if send(stream, watch.Bookmark, end) != nil {
		return -1
	}
	return rv
}

// follow streams versions until the watcher goes away.
func (f *fakeAPI) follow(req *http.Request, stream *json.Encoder, from int) {
	for {
		f.mu.Lock()
		var next *version
		block := f.changed
		var delay time.Duration
		switch {
		case f.stalled != nil && from >= f.horizon:
			block = f.stalled
		case from < len(f.history):
			next = &f.history[from]
			if f.lag != nil {
				delay = f.lag()
			}
		}
		f.mu.Unlock()
		if next == nil {
			select {
			case <-block:
				continue
			case <-req.Context().Done():
				return
			}
		}
		if !elapse(req.Context(), delay) {
			return
		}
		if send(stream, next.kind, next.node) != nil {
			return
		}
		from++
	}
}

func send(stream *json.Encoder, kind watch.EventType, node *corev1.Node) error {
	node = node.DeepCopy()
	node.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	return stream.Encode(map[string]any{"type": kind, "object": node})
}
