{{- define "lockproxy.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "lockproxy.selector" -}}
app.kubernetes.io/name: lockproxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockproxy.labels" -}}
{{ include "lockproxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
