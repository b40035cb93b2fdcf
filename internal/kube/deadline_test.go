package kube_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// silent is an API server that accepts requests and doesn't respond, or only begins to.
type silent struct{ begun string }

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.begun == "" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := io.MultiReader(strings.NewReader(s.begun), never{r.Context()})
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(body),
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

type never struct{ ctx context.Context }

func (n never) Read([]byte) (int, error) {
	<-n.ctx.Done()
	return 0, n.ctx.Err()
}

func clientOf(t *testing.T, api http.RoundTripper) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: api, WrapTransport: kube.WithDeadline, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestASilentAPIServerEndsRequests(t *testing.T) {
	for name, api := range map[string]silent{"no answer": {}, "half an answer": {begun: `{"kind": "NodeList", `}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clientOf(t, api).CoreV1().Nodes()
				_, list := nodes.List(t.Context(), metav1.ListOptions{})
				_, write := nodes.UpdateStatus(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
				for _, err := range []error{list, write} {
					if err == nil || !strings.Contains(err.Error(), "the API server has not answered within 1m0s") {
						t.Errorf("the error is %v", err)
					}
				}
				// A caller's own deadline is kept.
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := nodes.Get(short, "a", metav1.GetOptions{}); errors.Is(err, kube.ErrSilent) || err == nil {
					t.Errorf("the error of a caller who waits for a second is %v", err)
				}
			})
		})
	}
}

func TestStreamsHaveNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch, err := clientOf(t, silent{begun: `{"type": "BOOKMARK", "object": {"kind": "Node", "apiVersion": "v1"}}`}).
			CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-watch.ResultChan()
		logs, err := clientOf(t, silent{begun: "line\n"}).CoreV1().Pods("a").GetLogs("b", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, logs)
			ended <- err
		}()
		select {
		case event, more := <-watch.ResultChan():
			t.Errorf("the watch ended: %v, %t", event, more)
		case err := <-ended:
			t.Errorf("the logs ended: %v", err)
		case <-time.After(time.Hour):
		}
		watch.Stop()
	})
}
