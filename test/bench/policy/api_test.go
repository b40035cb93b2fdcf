//go:build linux

package policy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	gopath "path"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

const pods = "/api/v1/pods"

// server is the part of an API server that enforcing NetworkPolicies takes: lists and watches.
type server struct {
	fakeapi.History
	collections map[string]*fakeapi.Collection // by path
}

// serve returns an API server with all objects of the cluster.
func serve() *server {
	s := &server{collections: map[string]*fakeapi.Collection{}}
	for path, kind := range map[string][2]string{
		pods: {"v1", "Pod"}, "/api/v1/namespaces": {"v1", "Namespace"}, "/api/v1/nodes": {"v1", "Node"},
		"/api/v1/services": {"v1", "Service"}, "/api/v1/endpoints": {"v1", "Endpoints"},
		"/apis/discovery.k8s.io/v1/endpointslices":   {"discovery.k8s.io/v1", "EndpointSlice"},
		"/apis/networking.k8s.io/v1/networkpolicies": {"networking.k8s.io/v1", "NetworkPolicy"},
	} {
		s.collections[path] = s.Collection(kind[0], kind[1])
	}
	for i := range nodeCount {
		s.add("/api/v1/nodes", nodeOf(i))
	}
	for i := range namespaces {
		s.add("/api/v1/namespaces", namespace(i))
		for a := range apps {
			s.add("/apis/networking.k8s.io/v1/networkpolicies", policyOf(i, a))
		}
	}
	for i := range podCount {
		s.add(pods, podOf(i))
	}
	return s
}

func (s *server) add(path string, o fakeapi.Object) {
	s.Lock()
	defer s.Unlock()
	s.collections[path].Put(watch.Added, o)
}

// at serves in the namespace in which do calls, until the benchmark ends.
func (s *server) at(b *testing.B, do func(func())) *rest.Config {
	b.Helper()
	var listener net.Listener
	var err error
	if do(func() { listener, err = net.Listen("tcp", "127.0.0.1:0") }); err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return &rest.Config{Host: fmt.Sprint("http://", listener.Addr()), QPS: -1}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := s.reply(r)
	defer reply.Body.Close()
	w.Header().Set("Content-Type", reply.Header.Get("Content-Type"))
	w.WriteHeader(reply.StatusCode)
	_, _ = io.Copy(flushed{w, http.NewResponseController(w)}, reply.Body)
}

func (s *server) reply(r *http.Request) *http.Response {
	if c := s.collections[r.URL.Path]; c != nil {
		if r.URL.Query().Get("watch") != "" {
			return s.Watch(r, c)
		}
		s.Lock()
		list := s.List(r, c)
		s.Unlock()
		reply, _ := fakeapi.Reply(list, nil)
		return reply
	}
	folder, name := gopath.Split(r.URL.Path)
	if c := s.collections[gopath.Clean(folder)]; c != nil {
		s.Lock()
		defer s.Unlock()
		if o := c.Objects[name]; o != nil {
			reply, _ := fakeapi.Reply(o, nil)
			return reply
		}
	}
	return fakeapi.Response(http.StatusNotFound, http.NoBody)
}

// flushed sends each event of a watch at once.
type flushed struct {
	io.Writer
	*http.ResponseController
}

func (f flushed) Write(text []byte) (int, error) {
	n, err := f.Writer.Write(text)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}
