package main

import (
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// deadlines records the deadline of each request.
type deadlines struct{ of []time.Time }

func (d *deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	until, _ := r.Context().Deadline()
	d.of = append(d.of, until)
	return nil, errors.New("no API server")
}

// Upstream creates some clients before start, and others afterwards from its configuration.
func TestEveryClientHasADeadline(t *testing.T) {
	var api deadlines
	to := &rest.Config{Host: "http://api", Transport: &api}
	c := (&appconfig.Config{
		Kubeconfig: to, ClientBuilder: clientbuilder.SimpleControllerClientBuilder{ClientConfig: to},
	}).Complete()
	giveDeadlines(c)
	made, err := c.ClientBuilder.Client("later")
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]kubernetes.Interface{"first": c.Client, "informers": c.VersionedClient, "later": made} {
		api.of = nil
		if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatal("a list without an API server")
		}
		for _, until := range api.of {
			if until.IsZero() || time.Until(until) > time.Minute {
				t.Errorf("%s: the deadline is %s", name, until)
			}
		}
		if len(api.of) == 0 {
			t.Errorf("%s: no request", name)
		}
	}
	if c.SharedInformers.Core().V1().Nodes().Informer() == nil {
		t.Error("there is no informer")
	}
}
