package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// Services share a load balancer on a real API server: a port that two request is assigned to the
// older one, one moves to a load balancer of its own, and the shared one is deleted with its last
// Service.
func TestServicesShareALoadBalancer(t *testing.T) {
	c := start(t, hcloudsim.Options{})
	startManager(t, c, cluster.ManagerOptions{})
	ctx := t.Context()
	create := func(name string, ports ...int32) {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				"underlay.dev/shared": "edge", "load-balancer.hetzner.cloud/location": "fsn1",
			}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		}
		for _, p := range ports {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: p})
		}
		if _, err := c.Client.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	listening := func(i int) (ports []int) {
		if all := c.Cloud.LoadBalancers(); len(all) > i {
			for _, s := range all[i].Services {
				ports = append(ports, s.ListenPort)
			}
		}
		slices.Sort(ports)
		return ports
	}
	create("web", 80, 443)
	create("mail", 25)
	eventually(t, 30*time.Second, "two Services have one load balancer", func(context.Context) (bool, string) {
		web, mail := service(t, c, "web"), service(t, c, "mail")
		all := c.Cloud.LoadBalancers()
		same := len(web.Status.LoadBalancer.Ingress) > 0 && len(mail.Status.LoadBalancer.Ingress) > 0 &&
			web.Status.LoadBalancer.Ingress[0].IP == mail.Status.LoadBalancer.Ingress[0].IP
		return same && len(all) == 1 && slices.Equal(listening(0), []int{25, 80, 443}), fmt.Sprintf("%d load balancers, ports %v, %+v %+v", len(all), listening(0), web.Status, mail.Status)
	})
	// Ages have whole seconds, and of two Services of one second either may be the older.
	web := service(t, c, "web").CreationTimestamp.Time
	eventually(t, 5*time.Second, "a later second", func(context.Context) (bool, string) {
		return time.Since(web) > time.Second, web.String()
	})
	create("late", 80, 81)
	eventually(t, 30*time.Second, "the younger Service has the port that is free", func(context.Context) (bool, string) {
		late := service(t, c, "late")
		in := late.Status.LoadBalancer.Ingress
		told := acceptedAs(late, "PortConflict") && len(in) > 0
		return told && slices.Equal(listening(0), []int{25, 80, 81, 443}), fmt.Sprintf("ports %v, %+v", listening(0), late.Status)
	})
	patchService(t, c, "web", `{"metadata":{"annotations":{"underlay.dev/shared":null}}}`)
	eventually(t, 60*time.Second, "it has a load balancer of its own, and its port is the other's", func(context.Context) (bool, string) {
		web, late := service(t, c, "web"), service(t, c, "late")
		return slices.Equal(listening(0), []int{25, 80, 81}) && slices.Equal(listening(1), []int{80, 443}) && acceptedAs(late, "Accepted") &&
			web.Status.LoadBalancer.Ingress[0].IP != late.Status.LoadBalancer.Ingress[0].IP, fmt.Sprintf("ports %v and %v, %+v %+v", listening(0), listening(1), web.Status, late.Status)
	})
	for _, name := range []string{"late", "mail"} {
		if err := c.Client.CoreV1().Services("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "the shared load balancer is gone with its Services", func(ctx context.Context) (bool, string) {
		_, late := c.Client.CoreV1().Services("default").Get(ctx, "late", metav1.GetOptions{})
		_, mail := c.Client.CoreV1().Services("default").Get(ctx, "mail", metav1.GetOptions{})
		all := c.Cloud.LoadBalancers()
		return apierrors.IsNotFound(late) && apierrors.IsNotFound(mail) && len(all) == 1 &&
				slices.Equal(listening(0), []int{80, 443}),
			fmt.Sprintf("%d load balancers, %v, %v", len(all), late, mail)
	})
}
