package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const nodeStatusPolicy = "underlay-agent-node-status"

// agentWrites are the condition types that the agent sets.
func agentWrites() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{corev1.NodeNetworkUnavailable, agent.PeersReachable}
}

// TestAgentChangesItsConditionsAlone tests on a real API server, with the shipped roles and
// policies, which changes an attacker with the token of an agent can make.
func TestAgentChangesItsConditionsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	// The Nodes have no kubelets: no controller may write to them during the test.
	cp := controlplane.StartT(t, controlplane.Options{NodeMonitorGracePeriod: time.Hour})
	if err := cp.Apply(t.Context(), agentFolder); err != nil {
		t.Fatal(err)
	}
	admin := clientOf(t, cp.AdminConfig())
	for _, name := range []string{"self", "other"} {
		registerInFull(t, admin, name)
	}
	account := agentOn(t, cp, "self")
	nodes := account.CoreV1().Nodes()
	await(t, "the policy to be in force", func(ctx context.Context) (bool, error) {
		err := patch(ctx, nodes, "other", types.StrategicMergePatchType, ownCondition, "status")
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), nodeStatusPolicy), nil
	})
	t.Run("its conditions", func(t *testing.T) { itsConditions(t, account, admin) })
	t.Run("nothing else", func(t *testing.T) { nothingElse(t, account, admin) })
	t.Run("managedFields are not forged", func(t *testing.T) { managersAreNotForged(t, account, admin) })
	t.Run("Events", func(t *testing.T) { eventsAboutItsNode(t, account, admin) })
	for _, policy := range []string{nodeStatusPolicy, eventsPolicy} {
		t.Run("the expressions of "+policy+" fit the kind", func(t *testing.T) { expressionsFit(t, cp, policy) })
	}
}

// TestAgentPolicyNamesTheAgentsConditions compares the policy's list with the program.
func TestAgentPolicyNamesTheAgentsConditions(t *testing.T) {
	policy := only[*admissionv1.ValidatingAdmissionPolicy](t, decodeFile(t, agentFolder+"/node-status-policy.yaml"))
	i := slices.IndexFunc(policy.Spec.Variables, func(v admissionv1.Variable) bool { return v.Name == "own" })
	if i < 0 {
		t.Fatal("the policy has no variable named own")
	}
	var own []corev1.NodeConditionType
	if err := json.Unmarshal([]byte(policy.Spec.Variables[i].Expression), &own); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(own, agentWrites()) {
		t.Errorf("the policy lets the agent set %v, and it sets %v", own, agentWrites())
	}
}

const ownCondition = `{"status":{"conditions":[{"type":"underlay.dev/PeersReachable","status":"True"}]}}`

// itsConditions sends the agent's own writes, for a Node as large as Nodes become.
func itsConditions(t *testing.T, account, admin kubernetes.Interface) {
	for _, kind := range agentWrites() {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			c := corev1.NodeCondition{Type: kind, Status: status, Reason: "Tried", Message: "by a test"}
			if _, err := kube.SetCondition(t.Context(), account, nodeNamed(t, admin, "self"), c, time.Now()); err != nil {
				t.Errorf("setting %s to %s: %v", kind, status, err)
			}
		}
	}
	// A merge patch, with which the agent writes its reports, touches no condition.
	for _, key := range []string{addresses.ReportAnnotation, kube.WireGuardAnnotation} {
		for _, report := range []string{`"{}"`, `"{\"unfit\":\"tried\"}"`, `null`, `"{}"`} {
			body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, report)
			if err := patch(t.Context(), account.CoreV1().Nodes(), "self", types.MergePatchType, body, "status"); err != nil {
				t.Errorf("the report %s in %s: %v", report, key, err)
			}
		}
	}
	// The kubelet keeps writing, and so does the agent.
	heartbeat := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`
	if err := patch(t.Context(), admin.CoreV1().Nodes(), "self", types.StrategicMergePatchType, heartbeat, "status"); err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), account.CoreV1().Nodes(), "self", types.StrategicMergePatchType, ownCondition, "status"); err != nil {
		t.Errorf("after a heartbeat: %v", err)
	}
}

// attempt is a request that the agent has no need for.
type attempt struct {
	kind types.PatchType
	body string
}

// attempts are named after the field that they would change. They are strategic merge patches
// unless stated otherwise.
func attempts() map[string]attempt {
	strategic := func(body string) attempt { return attempt{types.StrategicMergePatchType, body} }
	all := map[string]attempt{
		"a label that is there":         strategic(`{"metadata":{"labels":{"example.com/rack":null}}}`),
		"a label beside a condition":    strategic(`{"metadata":{"labels":{"a":"b"}},` + ownCondition[1:]),
		"an annotation":                 strategic(`{"metadata":{"annotations":{"example.com/a":"b"}}}`),
		"its reach":                     strategic(fmt.Sprintf(`{"metadata":{"annotations":{%q:"no-room"}}}`, kube.ReachAnnotation)),
		"an opening of its filter":      strategic(fmt.Sprintf(`{"metadata":{"annotations":{%q:"{}"}}}`, podingress.Annotation("a"))),
		"a report and an annotation":    strategic(fmt.Sprintf(`{"metadata":{"annotations":{%q:"{}","example.com/a":"b"}}}`, addresses.ReportAnnotation)),
		"no annotations":                {types.MergePatchType, `{"metadata":{"annotations":null}}`},
		"a finalizer":                   strategic(`{"metadata":{"finalizers":["example.com/kept"]}}`),
		"an owner":                      strategic(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"1"}]}}`),
		"capacity":                      strategic(`{"status":{"capacity":{"cpu":"1000"}}}`),
		"an extended resource":          strategic(`{"status":{"capacity":{"example.com/gpu":"8"}}}`),
		"allocatable":                   strategic(`{"status":{"allocatable":{"memory":"1Ti"}}}`),
		"the kubelet's port":            strategic(`{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":6443}}}}`),
		"an address":                    strategic(`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.99"}]}}`),
		"a further address":             strategic(`{"status":{"addresses":[{"type":"ExternalIP","address":"192.0.2.9"}]}}`),
		"what the machine is":           strategic(`{"status":{"nodeInfo":{"kubeletVersion":"v9.9.9"}}}`),
		"images":                        strategic(`{"status":{"images":[{"names":["example.com/evil"],"sizeBytes":1}]}}`),
		"volumes in use":                strategic(`{"status":{"volumesInUse":["a"]}}`),
		"volumes attached":              strategic(`{"status":{"volumesAttached":[{"name":"a","devicePath":"b"}]}}`),
		"the phase":                     strategic(`{"status":{"phase":"Terminated"}}`),
		"features":                      strategic(`{"status":{"features":{"supplementalGroupsPolicy":false}}}`),
		"declared features":             strategic(`{"status":{"declaredFeatures":["A"]}}`),
		"runtime handlers":              strategic(`{"status":{"runtimeHandlers":[{"name":"evil"}]}}`),
		"the kubelet's condition":       strategic(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`),
		"its heartbeat alone":           strategic(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"2001-01-01T00:00:00Z"}]}}`),
		"another condition of Underlay": strategic(`{"status":{"conditions":[{"type":"underlay.dev/PodCIDRsAllocated","status":"False"}]}}`),
		"the end of foreign conditions": strategic(`{"status":{"conditions":[{"$patch":"delete","type":"Ready"}]}}`),
		"all conditions":                {types.MergePatchType, ownCondition},
		"no conditions, by JSON patch":  {types.JSONPatchType, `[{"op":"replace","path":"/status/conditions","value":[]}]`},
		"a label by JSON patch":         {types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`},
		"all labels":                    {types.MergePatchType, `{"metadata":{"labels":null}}`},
		"a label by apply": {
			types.ApplyPatchType,
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"self","labels":{"a":"b"}}}`,
		},
	}
	for _, label := range []string{
		"node-role.kubernetes.io/control-plane", "node-restriction.kubernetes.io/trusted",
		"node.kubernetes.io/exclude-from-external-load-balancers", "topology.kubernetes.io/zone",
	} {
		all["label "+label] = strategic(fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, label))
	}
	return all
}

// nothingElse tries the rest of the Node, and expects it unchanged.
func nothingElse(t *testing.T, account, admin kubernetes.Interface) {
	before := nodeNamed(t, admin, "self")
	for what, try := range attempts() {
		options := metav1.PatchOptions{FieldManager: "evil"}
		if try.kind == types.ApplyPatchType {
			options.Force = new(true)
		}
		_, err := account.CoreV1().Nodes().Patch(t.Context(), "self", try.kind, []byte(try.body), options, "status")
		if !apierrors.IsForbidden(err) || !strings.Contains(fmt.Sprint(err), nodeStatusPolicy) {
			t.Errorf("%s: %v, want it forbidden by %s", what, err, nodeStatusPolicy)
		} else if !strings.Contains(err.Error(), "changes only the conditions") {
			t.Errorf("%s: the refusal doesn't say what is allowed: %v", what, err)
		}
		// The roles forbid the main resource.
		_, err = account.CoreV1().Nodes().Patch(t.Context(), "self", try.kind, []byte(try.body), options)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s, without the subresource: %v, want it forbidden", what, err)
		}
	}
	after := nodeNamed(t, admin, "self")
	for _, node := range []*corev1.Node{before, after} {
		// The fields that kube-controller-manager's taints change.
		node.ResourceVersion, node.ManagedFields = "", nil
	}
	if !equality.Semantic.DeepEqual(before.ObjectMeta, after.ObjectMeta) ||
		!equality.Semantic.DeepEqual(before.Status, after.Status) {
		t.Errorf("the Node has changed: its labels are %v, its conditions %v", after.Labels, after.Status.Conditions)
	}
}

// managersAreNotForged relies on the API server, which ignores the managedFields of a request to a
// subresource. Node IPAM reads them to detect a second allocator.
func managersAreNotForged(t *testing.T, account, admin kubernetes.Interface) {
	forged := `{"metadata":{"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",` +
		`"time":"2030-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:podCIDR":{}}}}]},` +
		strings.Replace(ownCondition, "True", "Unknown", 1)[1:]
	for _, kind := range []types.PatchType{types.StrategicMergePatchType, types.MergePatchType} {
		// A merge patch also replaces the conditions, and so is rejected.
		err := patch(t.Context(), account.CoreV1().Nodes(), "self", kind, forged, "status")
		if kind == types.StrategicMergePatchType && err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	node := nodeNamed(t, admin, "self")
	if c := kube.Condition(node, agent.PeersReachable); c == nil ||
		c.Status != corev1.ConditionUnknown {
		t.Errorf("the condition beside is %v, so nothing was tried", c)
	}
	for _, entry := range node.ManagedFields {
		if strings.Contains(entry.FieldsV1.String(), "podCIDR") {
			t.Errorf("managedFields now say that %s owns a podCIDR", entry.Manager)
		}
	}
}

// agentOn returns a client with a token like that of the agent's pod on the node.
func agentOn(t *testing.T, cp *controlplane.ControlPlane, node string) kubernetes.Interface {
	t.Helper()
	config, err := cp.PodConfig(t.Context(), "kube-system", "underlay-agent", node)
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func nodeNamed(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// registerInFull creates a Node with all fields that kubelets report, of realistic size.
func registerInFull(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	node := bare(name)
	node.Labels = map[string]string{"kubernetes.io/hostname": name, "example.com/rack": "7"}
	node.Annotations = map[string]string{"example.com/long": strings.Repeat("x", 10_000)}
	for i := range 50 {
		node.Labels[fmt.Sprintf("example.com/label-%d", i)] = "value"
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := corev1.NodeStatus{
		Capacity:        corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi")},
		Allocatable:     corev1.ResourceList{"cpu": resource.MustParse("3900m"), "memory": resource.MustParse("15Gi")},
		Addresses:       nodeAddresses([]string{"InternalIP 10.0.0.2", "Hostname " + name}),
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo:        corev1.NodeSystemInfo{MachineID: "1", KubeletVersion: "v1.37.1", OperatingSystem: "linux"},
		RuntimeHandlers: []corev1.NodeRuntimeHandler{{Name: "runc"}},
		Features:        &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)},
	}
	for _, kind := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), Reason: "Said", Message: "by the kubelet",
		})
	}
	for i := range 200 {
		image := fmt.Sprintf("registry.example.com/team/image-%d", i)
		names := []string{image + "@sha256:" + strings.Repeat("0", 64), image + ":v1.2.3"}
		status.Images = append(status.Images, corev1.ContainerImage{Names: names, SizeBytes: 123456789})
	}
	// Retried after a conflict with kube-controller-manager, which taints new Nodes.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		made := nodeNamed(t, client, name)
		made.Status = status
		_, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, holds wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, holds)
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
