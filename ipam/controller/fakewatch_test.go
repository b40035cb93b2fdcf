package controller

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// object is what can be watched.
type object interface {
	metav1.Object
	runtime.Object
}

// A collection keeps every version of every object of one kind.
type collection struct {
	apiVersion, kind string
	objects          map[string]object
	history          []version     // index = resource version - 1
	changed          chan struct{} // closed with the next change
	horizon          int           // the resource version at which watches stay while they are stalled
}

// version is an object as it was from one resource version on.
type version struct {
	kind   watch.EventType
	object object
}

func newCollection(apiVersion, kind string) *collection {
	return &collection{
		apiVersion: apiVersion, kind: kind, objects: map[string]object{}, changed: make(chan struct{}),
		// Version 1 is when there was nothing: a list has a version that is not 0 even then.
		history: make([]version, 1),
	}
}

func (c *collection) put(kind watch.EventType, o object) {
	o.SetResourceVersion(strconv.Itoa(len(c.history) + 1))
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(c.apiVersion, c.kind))
	c.history = append(c.history, version{kind, o})
	if kind == watch.Deleted {
		delete(c.objects, o.GetName())
	} else {
		c.objects[o.GetName()] = o
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// at returns the objects as they were at a resource version, by name.
func (c *collection) at(rv int) []object {
	then := map[string]object{}
	for _, v := range c.history[1:rv] {
		if v.kind == watch.Deleted {
			delete(then, v.object.GetName())
		} else {
			then[v.object.GetName()] = v.object
		}
	}
	var objects []object
	for _, name := range slices.Sorted(maps.Keys(then)) {
		objects = append(objects, then[name])
	}
	return objects
}

// list answers a LIST: of now, or, where any version will do, of a cache that stands still.
func (f *fakeAPI) list(req *http.Request, c *collection) any {
	at := len(c.history)
	if req.URL.Query().Get("resourceVersion") != "" && f.stalled != nil {
		at = c.horizon
	}
	return map[string]any{
		"kind": c.kind + "List", "apiVersion": c.apiVersion,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(at)},
		"items":    append([]object{}, c.at(at)...),
	}
}

// watch streams every version after the one asked for, each as late as lag says.
func (f *fakeAPI) watch(req *http.Request, c *collection) *http.Response {
	query := req.URL.Query()
	reader, writer := io.Pipe()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	go func() {
		defer writer.Close()
		stream := json.NewEncoder(writer)
		if initial {
			if from = f.sendAll(stream, c); from < 0 {
				return
			}
		}
		f.follow(req, stream, c, from)
	}()
	return response(http.StatusOK, reader)
}

// sendAll streams all objects and the bookmark that ends them.
func (f *fakeAPI) sendAll(stream *json.Encoder, c *collection) int {
	f.mu.Lock()
	rv := len(c.history)
	if f.stalled != nil {
		rv = c.horizon
	}
	objects := c.at(rv)
	f.mu.Unlock()
	for _, o := range objects {
		if send(stream, watch.Added, o) != nil {
			return -1
		}
	}
	end := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: c.kind, APIVersion: c.apiVersion},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(rv),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
	if send(stream, watch.Bookmark, end) != nil {
		return -1
	}
	return rv
}

// follow streams versions until the watcher goes away or a fault ends the stream.
func (f *fakeAPI) follow(req *http.Request, stream *json.Encoder, c *collection, from int) {
	for from = max(from, 1); ; {
		f.mu.Lock()
		var next *version
		block := c.changed
		var delay time.Duration
		switch {
		case f.stalled != nil && from >= c.horizon:
			block = f.stalled
		case from < len(c.history):
			next = &c.history[from]
			if f.lag != nil {
				delay = f.lag()
			}
		}
		f.mu.Unlock()
		if delay < 0 {
			return // the stream breaks here; the watcher comes back for the rest
		}
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
		if send(stream, next.kind, next.object) != nil {
			return
		}
		from++
	}
}

// send writes one event. What is in the history never changes, so it needs no lock.
func send(stream *json.Encoder, kind watch.EventType, o object) error {
	return stream.Encode(map[string]any{"type": kind, "object": o})
}
