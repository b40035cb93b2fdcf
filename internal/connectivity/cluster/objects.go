package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

const (
	// Namespace is where everything is made.
	Namespace = "underlay-connectivity"
	// Label is on everything that is made, with the role as its value.
	Label = "underlay.dev/connectivity"
	// unserved is a class of load balancers that nobody serves: such a Service has a node
	// port for health checks, and costs nothing.
	unserved = "underlay.dev/connectivity"
	// longest is after how long a pod ends by itself, whatever became of who made it.
	longest = 10 * time.Minute
	// nobody is the user of the pods.
	nobody = 65532
)

// The roles, which are also the beginnings of names.
const (
	listens   = "listens"
	asks      = "asks"
	temporary = "temporary" // the namespace, if it is to be removed
)

func labels(role string) map[string]string { return map[string]string{Label: role} }

func namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{
		Label: temporary, "pod-security.kubernetes.io/enforce": "restricted",
	}}}
}

// services are the one for ClusterIPs and node ports, and the one whose node port for
// health checks is asked.
func services() []*corev1.Service {
	one := func(name string, kind corev1.ServiceType, protocols ...corev1.Protocol) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels(listens)},
			Spec: corev1.ServiceSpec{
				Type: kind, Selector: labels(listens), IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			},
		}
		for _, p := range protocols {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: "probe-" + map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[p],
				Port: connectivity.Port, TargetPort: intstr.FromInt32(connectivity.Port), Protocol: p,
			})
		}
		return s
	}
	local := one("local", corev1.ServiceTypeLoadBalancer, corev1.ProtocolTCP)
	local.Spec.LoadBalancerClass = ptr.To(unserved)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	return []*corev1.Service{one("all", corev1.ServiceTypeNodePort, corev1.ProtocolTCP, corev1.ProtocolUDP), local}
}

// listener is the pod that listens on a node.
func listener(image, node string) *corev1.Pod {
	return pod(image, node, listens, "serve", "--name="+node, fmt.Sprintf("--listen=:%d", connectivity.Port))
}

// MostNodes is on how many nodes at most pods can be told of each other in one argument, which
// Linux lets be 128 KiB (MAX_ARG_STRLEN: 32 pages of 4 KiB), whatever the names and addresses.
const MostNodes = 250

// told is the argument that tells a pod what can be asked.
func told(w connectivity.World) (string, error) {
	text, err := json.Marshal(w)
	return "--world=" + string(text), err
}

// asker is the pod that asks from a node, told what can be asked.
func asker(image, node, told string, settle time.Duration) *corev1.Pod {
	return pod(image, node, asks, "ask", "--from="+node, "--settle="+settle.String(), told)
}

// pod is put on its node directly: a scheduler would keep it from nodes that are
// cordoned, or whose network is not ready, which are those that one asks about.
func pod(image, node, role string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: role + "-", Namespace: Namespace, Labels: labels(role)},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         ptr.To(int64(longest.Seconds())),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "probe", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"/underlay-agent", "probe"}, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
