"""Stores that an earlier build wrote are read to the last bit, whatever has changed since.

Once a release has written a format, its store here is never made anew: a new format gets a
new store beside it. Each is a folder as .tar.xz in base 85.
"""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from rff_stream.moments import N_PARTS, AugmentedRow, Moments
from rff_stream.rowsample import RowSample
from rff_stream.store import MomentStore, load_model
from test_store_cases import bits, same_moments

HEADER = {"model": "KernelRidge", "parameters": {"alpha": 0.1, "ü": [None, True, -1, 1e300]}}
ARRAYS = {
    "map/frequencies": np.arange(4.0).reshape(2, 2) / 3,
    "map/odd": np.array([np.nan, -np.inf, -0.0, 5e-324]),
    "map/single": np.array([1 / 3], np.float32),
    "map/counts": np.array([-(2**63), 2**63 - 1]),
    "map/keys": np.array([2**64 - 1], np.uint64),
    "map/none": np.empty((0, 2)),
}
ANSWERS = {"coef": np.array([1 / 7, -2.0]), "floor": np.array(1e-12)}


def row() -> AugmentedRow:
    return AugmentedRow(
        map_fingerprint="f" * 64,
        prior=np.array([1.0, 0.5]),
        nesting="average",
        feature_origin=np.array([1 / 3, -2.0]),
        target_origin=np.array([0.1]),
        target_scale=np.array([4.0]),
        inputs=("lat", "lön"),
        targets=("t2m",),
        units=("degree", "", "K"),
    )


def moments(order: int, i: int) -> Moments:
    size = 10 if order == 2 else 4
    return Moments(
        row=row(),
        order=order,
        sums=np.arange(size) / 7 + i,
        n=2**40 + i,
        squared_weight=i + 1 / 3,
        log_weight=-i / 3,
        parts=np.arange(N_PARTS * 4.0).reshape(N_PARTS, 4) + i if order == 1 else None,
        sample=RowSample(
            3, np.array([i, 2**63 + i], np.uint64), np.arange(8.0).reshape(2, 4) / 9 + i
        ),
    )


def unpacked(text: str, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(base64.b85decode(text)), mode="r:xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "M.zarr"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of format 1 that was fitted on three groups, got one batch more and lost another."""
    return unpacked(FORMAT_1, tmp_path)


def test_a_model_of_format_1_loads_as_it_was_saved(model):
    stored = load_model(model)
    assert stored.header == HEADER
    assert bits(stored.arrays) == bits(ARRAYS)
    assert stored.moments is not None
    assert same_moments(stored.moments["a"], moments(2, 0))
    assert same_moments(stored.moments[2], moments(2, 1))
    assert same_moments(stored.moments[None], moments(2, 2) + moments(2, 5))
    assert stored.moments["a"].row.fingerprint == row().fingerprint


def test_a_store_of_format_1_goes_on(model):
    store = MomentStore.open(model)
    assert store.ids() == ["fit", "é"]
    assert store.batches()[1].labels == {"day": 5}
    assert [entry.op for entry in store.history()] == ["create", "add", "add", "forget"]
    assert store.verify().unnamed == []
    assert store.append("é", moments(2, 5), {"day": 5}) is False
    assert store.append("new", moments(2, 7)) is True
    assert store.total().n == 5 * 2**40 + 0 + 1 + 2 + 5 + 7


def test_answers_and_moments_of_order_1_load(tmp_path):
    stored = load_model(unpacked(FORMAT_1_ORDER_1, tmp_path))
    assert bits(stored.answers) == bits(ANSWERS)
    assert stored.moments is not None
    assert same_moments(stored.moments[None], moments(1, 0))


# fmt: off
FORMAT_1 = (
    '{Wp48S^xk9=GL@E0stWa761SMbT8$j;kW-7D_sC4i;G4R%=s9vPtYK%$KB5XT^*8rI9e+s_Mor9<3zCY5G!NNh~f'
    'p${E!&^gcwb}^Vx|*2Dnm@$^SRM<TARQsQz=_9306)$t>>NDrE0mP*oN9;5b<jXN+5~L>TW{pYUDVqWHGHU*gO;#'
    'x$U3jrqi=(}!?&df{u-+7AK|y^}eKlSn9!C1IR*>r;D5MWEhhy>%V&q#mIpEO9`uVAE5AJisA~!MHgK&5CyQCgS2'
    'j@ZHXADA|RpUVk|LL$`<TB_MhTNE=;`X->WK*m4C6WaX0Q!=H(Y0jbyxur1`C7k-lTu0HRO-u$a%j{AmZPodZJOh'
    'O@-h$!MLxhb(xxfI4sCwkTbQN;8dv9>MrVLj)LcY<Bkt1qVOC)SrW)#m>eL;J>X-c=pU%M~(o=;f8DmxT*OvJFiY'
    'SOTA4PRV)uI4fckuAmO_Qjxrj&=^adS6!6sO*aIAzLnqnuL#AV(ki==2Yce!x3-^bo%D8lwCg3YV3M+v3YiO`tYk'
    'O9Q0U=2lZXjl_qpSk3@t9brcM3|tv`O}urGDeTOp=b$KHSV_KRt&(Iq=Ao8Bd@gJMW`cZRmO|FSk-7Z&}{vP_oKf'
    'EQ)2XK7XA&Qv69mEl@)h8r^^m|K397wOl637fYPsj(&ndQ{^S_YA33R|j+ex6PWphQ1qpBUjPzzuiCuJp`w+OTmg'
    'na?}+Y>$3evNs>r!h?*}?;GlrFHVn{r_T{xX;3PKk?sqrvX<mv|axk#$yO!&HmqPMJO{z|4lYH0{C=voe^++>IU6'
    '3j7F0<|B-yBGA;+LmUc&{Qs)xy86$EWMwSu@FerZR4&(T!+w@8#6QoG~g2^b{#&z}qg@xckM{?zz`hoeV53406{I'
    ')>X_o!m(DDl=wojKhgz&(`M0Or$|9L)QKw3q4blaG*(YDE;tfVPD1*)*z|P3)s|&i<gsiZ_9U0B>$&7qG^J4}+5T'
    'fdOBU{csO5XfqeJI@77<UayD+vw=6r0Y=c&z=He38a35re|GtQTyldjcGUB-C<??6=pI3pp(lHQEl=DZn&jf^ij{'
    '?YxXn_0PW(M0nPbreJ89~8ZMEdeH>@ZpAN2*ciVO-I?O-Jgv=W#%C%<GajR-_E8q$<!u-K)ioxsjV(&q5g8cE%Nt'
    'o4uisBqEwC=(Le|7+eBbP!Hp*MdcD%Y$QB7R1PDg9(VOyE(}2axs77M+XyvW3FfWB)QpJ$LafC4Rw8DSRk+l3uN}'
    'C*E7&n!iNsylz)De){#?Hk(bj7AH&m`9Jq>XJ?le1|Qv9pEZvEk;5VT3f2z8}#DFco+~%|0M06EJH`!B>w0f@0HW'
    '=uA%2w9X!!{cu0g%g&@TCkz~Sr=RXvU>?8Lr&ME_cDtG4cg<lc&Zl5{=2&zc&p?TfK6uvY>!uoaP<xFq=EXE~vc;'
    'y$xy5(RG25^Zy3>@vtS9C;BjPoiPwsI{23j%L3K>HG1q#F~agG%N*WlWfye&e|q%Ib8OA6HTxtLXG0Gs~u^Sh(MG'
    'hz&SA>7YpZiTc-DC+6zQSCZ@v(3~TK!24>Ms?xF$)@;jn`Ter@>n>&aEx*b4Ys5k_uN5K+bcxi(SwODY0x~aa;Hx'
    ';!4eb_Tn?C`?j!%*+wyNO_OQ-vK3GH{0sL{FKpt^QLHJ!~VKoQ*sjKao?(o)`P;oJ!G7Ndz4!0DYO5_7E50w9)sm'
    'dh)9+N|6fK`GI@kW)VbB#pWc6IPBhpSf9w|k;juK#|F&Xl(r%U{gjsuNAq2x)0X&N3RsZN({ye^3TZrZ>VRy}p3a'
    'T6YH-#KSd6qb{qkJAaIS`K(5mpfijK(X#i-<UYDO$Sx1RYD{~Whnb96K3O{|s`FB1XL-y%5-5&wL1S@WdqJEzc>J'
    '(4mI>usfdsp7Y+!J2iMBJ!UzSJA<lBwvqX(_c_A$tioQ6NGK*WSr6qzJ{eX6Fn-{S_oyBxqei$Nr=D~Sa*+VWkC$'
    'aVGCK<6g3Qbl)^+wzXqOjKpTcx4V!Ga}w$H%d4>b+1Txihp#a4d0!NG^U_pk`oBYIx=4jF=Cwh>W7mrcO3=E7?~)'
    'dvdiaLIYv(+KrTR1O*$zoup35-;ln1H@~@7fr}T{Mp(N95oTp?+7zIO437s=3*4>_Ak?P%4vyAt84O&w3XuJN@GU'
    'd1DyP<Vo$EsWzX;3zu!EqA(!5mWVj*Nm-M!4r=l?uAUBWfunb6q53j3zj+4smW>bW_S)%NzQ6f)CdL`c}lG+BSQ3'
    'L7-N4D(Zyjy1eO}CIl}7kTXU;ra9J+r5wyx{Y6xp_1(CJ^s2~qLw1j6;M_K)Uw7hCEh?9r7Q<KmIL25PJ~)rggX&'
    'isjRU2I1On}fz73HczUdXLK47HmYESMY(B8bd*Wob92B?V<;cn<OZ(+^XF#$$wRuIV7S(K`gTt4>^_4_&`n7)aF4'
    '3``a!u0OnwgC}tBaX5elO4hwX37$6FnV@Lq|^Sp+;%{i3_9-pzX$A`<r%6o@Y!?H6k39p7PQ_k=)QCH=`d=Y<9^o'
    '|%M9-3Jr=K19E`7*xTm=}sJ(HJf8kBQzzBW!wr628HYL{~Wyn4qO(n7YI}B#h(zf8#&}|GX%xg_=-80O@iSXdsx-'
    'D5*$vQ$Fe4H~+$?aTlSbCA@MolofGSM8WVpSUHOI|<#lFkI*@)7_9x*8=@4gs<`hxVJ~Uir9bQr-fL^~Cw2u`#^U'
    'ELA#ftv(#v{wq#>F*O)9ITGfE^TMOMqOJ4^JP;<+dRH!_r|VY986(JZx7`4wzg6Ghya=r34`=VV%h<YN><BK?TLn'
    'FZf9pbz^sBnNnE}oVh)<5j!GpChvnR#!0b%xxQQAVv(}BmcTD+(r&$@8*Nj#Wm&8vc8bLZ3YZ3Yx{yAL5YI@(+1o'
    'QN_Y7evoyoa{7~7)h}HGsglCo;YWD6XKoLL+F837j6E|TJeh}Z!oCB;eLegZ_KU!1{Hssbw<6t2PKN4v)gD{1Ur7'
    'I+wY&inRBc^Bf)W`^PT=3&}2GNUQsrE@4{_lB_LP*ut+E}bZc7>Ra_b38uJ#c-?5dSNnPMDocUwan4<wSxrhwpmu'
    'W32EkbnV>JJ~8V(cTfFz?FL!_Fo#w3Hu7upmahC<kN`QH8_{!8{r5m8Q??g#@)l57i`K^$9^;I#pd14xZ`K0GH@<'
    'k<4;r@#1f2=W8B+N=lWUh51Z>C)QWzJ~eBVHsUM@j;w_L1Vx(s<!;k+C|ZKg?R@zT(DNoh^)plZRyS|z8`KguGGz'
    'GUp#8H9;9zE!*X1j7r2F{drZI%UK300PzK2offY}`T763g$OX7b4DSf_v>6rG3D6I)Pq)3hEcZp+KN#rjXP#SZS9'
    '*^;YpfPQ!*_Q}N6AdDw1;ItXt@Sdw>ceEgwd`{a@nWy@<flvP7aBgBLjr7~Uo6Qwjbt4iSJ^Orxg0@k>4(QPNUk@'
    '^o3P=llq6~3!PiqO&R$YiD12u(h}xcALe1q>5>a%*0vF_t8MJdAg|zdWE{+0c$ti5%S(=sKv%RwOi$p?V|8Jidoh'
    'dgf&44ya*w)%lij~9_McuC`il9D>;)O2a^y_50N!167V<L0``)R8*8Xf#7d-PhJGhyHtp&NtOBJfWVW!$QfG|Ul>'
    '{<>U*04!S!u%YG{9ksCv!U}tgvm!Fb@g%#@md^h8QXPK}qlxT<>)s7n>NdYKk^uD7fak44VN)A{2ue$2-8n+3W-5'
    '~&25*<^TYZPD!ai6wu}O1f;@ZBb5`?4lg)~llmxKEUi}~Jxs@11i-U@L>0#%S$D0iM2Ej<T^qTm%)hvL9Wg0}Fz-'
    'tiv7=+65i6Z=5Wj=WIW#t1X9QR@k=)dYK&nHKaf&xQUS*aQHF5kEjmQz1tIdN`phe-A@$;0gS}P3blEc3PH0pcHW'
    '%)m9N9QlK@igJ0R@jRf{rkV-OujjU{lJOoecX5q`|x&D~>D2vCEBrB)CD1&2f%R*U;wF(adzrY-0ctM;4btA3l*}'
    '32A3|G3pMxOMp`z!=4kudw{%2%WNL%Ap43tFFr{8Ans0M}>Dyo-&YzQ0s3Ud%;&^EHkHLHh^QfjQaR)VfQ!o<Q*4'
    '&1>F8-mRMMSa5#7h~|D|l6~n^IgaUqh}6Y{EI_L0k55@RGcrcZ0b-LI1{XD-h@+a;;ejORbpJywLAYR1pklhdW#3'
    ';{R{$rf7-<!ot(!cTyRw?oJU}`JIyNQ+K~5XB*+a*?J;UbQp@3NXPrWSZVl?S<Yv#fASk76FXzoE}%8r15vu-zku'
    '57b=osF%P8A4@UKpLbC1&M`S1Y=2t<+6Y#)*|uW@%|H!^-{Ryu9Ab(%$jMp+}(#){{sk6LRS_I7II^BsX?Fges(Q'
    'HK-R1V_^KowSSJCgb<c>_USR>|f(w`hA1T%feV7KfOh^X@x;(aVOP1G0*=ml0V+Cl(v=3!-DHp)i>_#Z@1Ns9daS'
    '2(Gjn}B*;6V2-NpGaG3ozW}bx412YH`tzOgsK4C>TMW4#;Nom>C1_agclhSlagmwU*Y<nGN*=DD_weGP8B^{h9XV'
    '09fy~)Kaf=v?WR*Grb6j8HV#P0fck)S!r}aqxv2nL(fO3^)MgNlGav0phc~DjNcv?Hl*+b1WR|2D=^G+vZpQbLN~'
    '`eA0Zh0?TGR*A)kExTc|-U#&jFUm_j}Xz5|l5H=&*i{eqwh*XV}-8;his-WP!CipQ&o=58wt+154GEZIfgVmw#7K'
    'H(#d-qo03nUMM?#P|Skr1p1$EVnGkdb;qSoig2{d6|elu_^>TQR`TQ!$kG;?(<)AITa%9K!U~6i}p&Sk`JEB?Eyb'
    ';U@~|R-K~g1l6g568Je@-UT(noM&aw$WXlw;GJd6Y38BkxjCV`;z5t@;NpWR`KhMiv?SZ_m)7r=@{JmWyx1@?djt'
    'ZF)7U2;Yu@7k*v`qll?K0g*k$E6WyYtCd%hLTQl_1tJZJyK4b)MT~#AT`zzu4}9OLQmUa%tDw%-x^Sxe-y%FC#A4'
    'XcgSsb`xs-eE({3Ad$UX%;*vaGRV38P#Q~g<lRmED;lR+_TJ6Zq&FhMP~361NDzK5?&{w1TW7rhFXUM|NhiUnqUS'
    '>%@+C3w)TMXf1AR7|X2+NABDq|w2zq=yl77b^DjMMraUEex&8D*ViSiuVwG$#vYlUaP-8h}*6`MWY%11_JX^Kdg<'
    'eNZJ5!TRHtN(a(-?i>Bf`DhCD5-DgKOb{}#o5B`IBjA6^jiSV4fynHePg>*{($v{w4dkK>oP7vYhYk`G@||DV4Sh'
    'ad|?GE%N4ItullajCFkoHCC%J<py1spjf5N4|K#0%3*gX#srVpsp|H2B&v6MGAVuOFaGC_U+f;!%;NLs<_iy|Ae+'
    '41xnEbA7Lb<MJzvgK_`k)nzeaD%4A1|*@*~396v}TajTBIYP%3i8i#sxYlVxWzRF4Rbpi3Vz^?;c_HwUU1Q9I6|}'
    'LDhQorSTOTKL|1xlL|gA1`h0Y8x5Y1JTzo_z%c*CYXBFXc0TD*F}F70GaO@mhGqauV##4C5GY)qWqUUF4p7DWlpI'
    'r(<cAI@LVF0uH6m;7_GKuapW8f?249<xDal?~g!^XnS#P>jx;TK4@)aC>OH%AGG2Rm%IBdp6<Dh)YywQH!4mxy&<'
    'ge8g-}X+Fa{~nEcKBx?92k*z?TM6qp(1$Z#S-c2G*=(cAeaoidvPujV#fGQS4n~$`K=>bS$)Vd>PT;Xz3X}Hg#ng'
    '<tmwH4QO@`ZD%prBKld-I_@8(A>8cA;@O_VnY2&l!jRg<NtT0m{=e~UWNe0Y!x)6Qs!5Vp)QCVF+R6XE`J+K(q1k'
    'Wr~22p>$d$#(v+X<uZye6F0>QK~~a@rXJ+}x}&HYO78%aC)&lNRz^PQLc-nu<j(%mQ&8*YM$*d=Z@mb_2xQehHnE'
    '5mwWDCUv?VS>(BL#^Q;2dr{+Ts1v|anZ~m(s=|{!Jhbrt)KHDmH9B!VN~zJVGsSvH+Ln-oRb4w{%_N%gdYkm7Hu&'
    '?okYnPAOdEodz)N*KFVQDjQ>~vHdED%nieM`u7g^9dVOIahh*YviD9Vo)68VMmKzK12jKmu}vZLFaR4zoN?B}v}s'
    '9OzPw0f_mUK0JcD5$0*gx&eP{?FL>hStZ+VLuXh8XEzb=((3nbbOQmQrpRRZoCa|%TkO;tWm&5MdDWVb6TV_EkHr'
    'Q;Xa8;E_4=mrXxeqwaS1zKYk*t6IKrd`zl1Zd+}7DDl|d{i6?W5RR?TIOD4$Ug2rplW>LlAvTvcKq_GGETaIlJB='
    'wO1ZfonQ(fn8B$xAgV3cMe4q=pI#AQpwcVY1g;dU+*&!%4JLNB-7YMXOB!u3ZS?>iVDN14Nw-L_)Y=HR1an7izHE'
    'sCj%jPqqu&cK|xISQ?&mFlZve`2r9Mhyj2`t`7c{@=CnFIn_)zeueE2AglaLX>4?%aFHPTb*U4Am7Hpv=b5^%c2H'
    '`k8^H^zyEK8pnQ^uXWNs}0;5RyoN5J(J2qZBoi8a4j(F-i}F8a)8317?I{zXEH(?6d}tr!IiSffx}cUM%{?8XUz@'
    '0a%hbhVZk1da;k-W`016%7jX&TJAfDh7GU@<lm>0?Rx2`K|}1j*{2?dNuELz{r8M$$kJIs9Jq2EfcEvtxUe9ZFf}'
    '5{F)nh+a1_}95o{#bI7-%al3jq!w_^m-<-KNkC9!pX1Ix$3&tlHR-sne)plWgjQK#ux2Rp7=nzRoHcG}i6P3?%@r'
    '$wki8X)2W?fBBH?|_@{sr~m7$uZsO=t|%@ARigaX+^eM9^Zt?x)zLN{)#9nN0~?6t;Qdo>w6dw{^Lop0@m=(^`%7'
    'KNQ#$nXpy)Ov(Ead2CtW8?$&|yrn>1T@9UAORkCfkqn-sUi)X_EF4I2vDyXJ4h&`i2Z%RF%vois7tNaGQ+jzUYtP'
    '-^r5jet+7jrATL=YlKH5>msMBi!i8Z3>8?2h-gpZktYSZ&A2NeP^sHM#&tyme6yN!x_F)u94ao|5iAOhKon4NLV#'
    'X#oDk`AqPd%UMnY8o1N7aTfdXw%{nswd#4m|{#f+SU-v0+)P+EIC$!u_?8oG(YNa#C&1%?#~LppzIQgNpCK<!aMt'
    'SR0t}ejm=Y93QmZP{f!T&^2K{bLAq;Y2-yG!<itl!|3l|C4W(>EQB_QCp<dLEG;jnO`*<-D-&B;soPwnF;nWDIln'
    ';f2&wZGDLa?A%;(bEvMa}{?jy?n_!;cCWePO7%o#ud|XY$}o8)BNQ-#<y7c@P%HD!$SCTHr}WotODam@;>jQHK0p'
    'ES!V%<UKMNQ)eyL{`F5mBudeO(&3x$8L#y{rI;7GPjVK$tcBmUC<*u|o=NCSl$C&hZavVgY4r*~Xz?1cnp3pKo<~'
    'ljhl#W6p@y)S<+&F>8ug(trrnPR3vBohT<Jc?<55)eM;_5UAVS(uKIB3k3ZHcMZ{_*&nvnoql)=O74W3p1^wd3pg'
    '@8QT`0S^Xu>Qwi=-kIX>P%5<C-5j!g%^%jO5gOmOf1VbFet2%;01WkQEx&?CdIti+IpoU?pv1rw`b<P`vHJktUNd'
    'tEtl0_$EQ%va_*%pDv^gqCyVrZq_LdZBk|v?<Bf~X%m3zMHC^BMCykF9+J_#hVEoy!W*AJyGNnEXG}+N|@xl#D!&'
    'I2wW~=-?lU4rCz6F#J^1%@rT8e$C#dg)NLrZc+v$=AlD#LOUT8agrmWlE>RJEiu$k+X=rgLaJ&k={Q<qSJmAn1Nu'
    '5`5ubIkTwEAn#(8W4!_P_0ggN<WUM+6s5&3>m~gOvOQz{D;YFwx&Tv7+>0Sp$r#c2AJ$5Dvzy%`vodCozNbddl0+'
    'KpM63(^$ZkBJ?t1#Et<DvT!IhXQ&+C_OuKVJV?Y%z9K!q4>G-E+4Tb&Hp^Q6;gNpz;ppcr^v<p;Y|Q8{q5yZ;!*H'
    'Lm4d?Gy9xx#qJk^z*RmXhx*FdRbCH8Ae`?zQT9LdIE1zfbOxS)?h*x_+}tKG9by*)M5%dt)rNqW?JEI5FpJs7;w5'
    'CaHg1ao+#qkN{g*B9h3B9eE1erU%&tWg<QK&2JPBu00GA^fba$YIv`$PvBYQl0ssI200dcD'
)

FORMAT_1_ORDER_1 = (
    '{Wp48S^xk9=GL@E0stWa761SMbT8$j;P3wp`CR}ei;G4R%=s9vPtYK%$KB5XT^*8rI9e+s_Mor9<3zCY5G!NNh~f'
    'p${E!&^gcwb}^Vx|*2Dnm@$^SRM<TARQrg-SNZ&;`CT=3+pv8@v;l6`%D2t%obY8EFmN8F0m)urrc-TSYJJkqD$A'
    'Lmz<oDSR;(<0P*Cz2%6%C2kz$YuNEy7jMBMjfdgUbX1Tkka=8s8-eVgXW*S<^R$%6{8c%d~$|)3kz_=50!rMz(&0'
    'Px4~8^$u7BCNFnfmeRrC%Ca~7uS5VD7JjXkU--95_9IKcuFv^4FoEh3Qp$XAas%v7M@&BQn_KSZ_Zz_3EkLRMfqp'
    '|5Vf=OZH>j0rjH*QvdtTD)d@(Ak{QtwoL8m;~j>_3y-SU_nl?6M>?9;!AU7Px5qgcyKlytRwG<wMHI84w&It8N|f'
    'C&<<PGE1jM8T&o+JQOl{j59%nQk@3c1>OKG6V^$$!EUaqXjV4GcEFzqbX|DjN_}NnDLuM{Cj$bY8q3nfNoPP$BMm'
    'RkFu<UmO9A^2Akjx?fw>C&i@e#Oxi{ZJX(EQatKyj}t_a=hYe_4a*SFQ7jP^W7$3!&fNj0v{0z~nu@x8vr-{!G|5'
    'rsJ&3<wP|F1TRDj;gVK;XLiVzg9dUZ34qWs;7U9;-l5Ws$@=HUBd*dD1KCf{^Z{Xn@-rmSNPQI&E&&3DW)*Iea*w'
    'HLl;j*eLt?jGE)-;DvQ<$kivi#ZeQCy=6_Ko0;)ALhNmUAwTA(&Y4zC2=p8nhnQ}Kwp9#NwNUSJL{3&1gz&(}*5P'
    'Bl$1*U<?&)KW5jS~<GuU&&jClAx7+&Tp12&6XV3THt?C@v{$F>fk1HmFx_LlK8G9Hdk!!xgcRwUzw4Rz2no$y4~k'
    'CAuPSwK|_mlg9B??0d{^dg~qU96FhX*khz)vcA?OgXIv!o*!kYf1hDyMh(FWQP{H7Tf@QL4LBz#&(D5j35qkjB}Z'
    'zu8NRmnVQ}M>QI!HOn`FU2xn^IDTRi6{14KpF4N>1dxLg{fmi`DTnx1XW8=L2rsYA$_^x(1A3UD*!##ZEy-We{JP'
    '$?GFhbv@80-~^yj}5JXP=;hZNmkj}wr$OeWQV9`HZYpT&9xN7de#t{Zn5(eF3w*$#Z?~{_Cr(3Xp*sh`m_}h5Wv{'
    'OVYL!Q*FXxSv5A1c1GXC}<EY&$YlSCt?B6NE9Fp1l(_x@OEhw+n3uSg?t><p3`^5$Gx36;kC{=Uuen}aye~Z-zNp'
    '0mz>w~bfGQrV{iN@U6Fsr3m=W3Yr-K0kIvq`!OKzW-+n$OZI{)%DILrsPV?ZgK_qW2Sy2qh~<QbO;2R_CxlZine{'
    '%)1;cTkJt!9gOt`l{AV1kD-w3w=omCR=RFlFur+z0gj^tad)rnQK5|OKvEeQ|AFdW%D>hFx0xj`#leg~#UROa=I0'
    '#`GB<ORZn9BiCC%b#A`vCs$q)87^RVEce>3jUr`tiD;Z&xOF=}VJ*rv1wL_sQgY4bx2$@8?mj73F>g1?Qo!0U7<;'
    '(zp7pE8>B#ZH9JqH3Cn!pN@6`RV%RZFe8K5B8vc&s%dJZ&1aYI;4zI2QH51<_QJ6{r_p_*HHsFk=(B)EttSDf<{^'
    '%NdQ@t^N7>l2i>zfHI4azYX7#vzkO@YI>?C0s(T=goRK8Gidhth$p5H?9n!2GWdO`Dx%2nb#J~Dpdyv8nfyn4))='
    '<cMg=~Q|{?ZI3she^;X6M_npl$bRAr;goj+s;i8Q3q!Sl88`F#1+t(zAVvr_(pUm&zDHHkhlKEiKvH!jlH<2?eg~'
    '<_{tO`Eg2R2jFS}(G}=Vq5A`_8e%VxV`kS{#1kla;CY0|T@JMrC2;RUvJjp>fxc(o(>=WQ7p=s-fKJi87tXvmG2F'
    't3dpt{f3QNyO`5T)8Vp~tq;pmARHrfz+ZzE>%|C&N4NQ3lzn2=FYM-=;511-2IhQ&dy+i-M`Xc_WH3GFS?T3z$^n'
    'W&6SXGhGnOu+0E3r=MFsg1aj2o!0zn!(+=*eOt+@)^U)@z2OsZdEuU^Se%vGK+Uv@t-3iW0Ktbnh176<9n<{&E{Y'
    's>YKt;)W7gu=Gph0-@rcQ2#M<N)1tw2ixb3s6mKmzG8z!+AZRs1scmJ&C*$Qn@#MFSN1wIAvapBz3Z_Juz*pMn4Z'
    'uj|-B)BgR^mprCaN!^#B(%G21aFgzJOsoQFe&-M8lchh^3w1P6JJ##CZ~O5UX;;Oo`28Dn(v{l+6x6qJM@;-)Oe-'
    '6A<=sS?Z+%{&K1lG~CraG9Z8o@3mimm_0m|&Gy>Sqd2LM4-0xsST0+I%wxJEFe@#GXr#u;8|1|$(nwK99Y1aQHi6'
    'qNUkLq)nB&IFSFR8)%g-J)Mb2J=F-!)Uw*F7&HSBCf?AjmIsh_2bf}1?GDuly<UGL|vS>-?Y*4I9s^iMYSyLQE4D'
    ')I!S|9n6FK@1M=jk$ym(Q2K6u-MH!+a4!C*F$HO1rzQhFWDxy_@5()E3l<;;%f)L2$}s|-w~xWbE0CM5I(Jm$=fW'
    'UUK@=rz&0~R4TqsmS0zBt?I6gB-y?6pXhvj^=@}(sT7~43NO#;^30<iXCA0cZ)RL1-K`sh7B?U|)+aoSP4zP5(jz'
    '_IFWhcPA_@@1&XKPwMB_4}N(RkF+-m~$nz$*T@K%^$lIk|I_73<%@3n$Y8`N;CT)V-Ip2W0KoMj5s**FqE!AesS6'
    '(=ui~tyr9n_N3f4DCP*@ET#FuaGjdQK~{V;{N6I@pi_vfoLk={MnUpw*hG<wp?D`E+9ATIOPR~z?!0yr#7?N@`!c'
    '8VM@jRlF=WTgzALdtMT6zPgjyDZRtxG_s5|oSROiY@;?hsB8XlX#TCDc&JG}(ye20k?y5XvtJt3pQ^KD9kb`}$zY'
    '<TO$xO$kVx-1%CRO`F=%S;3`@%eA=&My+mR4KCf4?F;dJw@@?6JLL({=YPx%MdeK%nsSete2d=@n~yc(13Q+5jw%'
    '`7t?s6R-wA)%^Q$AfB!?##1@?$ydSOpAL+!ETW<ar<;YLQMtA-^!0O#jU1RCTVn5ACC=pr;hKunszE$?XpG(J$@T'
    '@&mz2-F(3ZlTSB})GzxFMm&Q-F)h)xCq+II?L5Dlo|1Gy+&Fo>ZH@`_n*6pl&faJZ$&3JJOC=#Fr>vETVp?W5-A)'
    'zlMOs=>Fz=8?zu+##ibigDtRm8eFrec7TYui~u_&z=p*#K1iVX`olmYE#{^!Ee_qFNH2P!ty`ndp=L;FlnQjUlSW'
    '@FsZScFiZb=EPEqaX#Y0{wsm<>*jH%)Q6H7ot_*J^%O0dqq!jXa`QBTgkYvx$PJ}l{y%SDw2$5h(+;r^@W-ewH4j'
    'K0xL#GX?BZ`>Pc2Pj(}6?Yzfr=l5;wP?39cKgp+8!Gs-S`D;nS?myz2{F(%J&j%8Ioo0S93QQK+^q<%KRv=nh?QD'
    'NYvY-T3#j?`!>8FDhiF_>L=FHofGR1O7yklbgDn-Oi}h*bb+_fw)K*jTYFt>dPatga$vz?+l?eg7rJ<%FBJOz{Nb'
    'I2h=WQ^_>f+Y_$V%xR;DEU5SfS2tp+o$lv?|8E%BXv0fS;Np+dQPevD~~nU|Xnj<ZZ2{%NQt>TFRsM|6-XF2`mIV'
    '$a1KFUtoKGY1X_K+3u_z?uKDOmiN{km#kX!pB@F?nWD2YgHIS3X#W$L>_BYW{)J-L&N~SAp7bX1Vz&nU->V6rO>C'
    'H%C6CrkrxUiuyqN&u#|@j#VYP%34!81IwV6!%^Q)?Ip;_|vSXR0P`M_P%9fOHf9<T@C+=_&|$qz@stFF8F;-)X1d'
    '3_dvV|tcnL`xVm{Z&9dv!bM9IKET5HaJVfXvNJ=Ck;+Xm<>;~fr=nBhEd>0-8}ba9RSQcT>0Wp$lA6UiF+|aaNrq'
    'Vb-3u?1R7if*pfk~F0g<^-b?w*+f?MEk*VZH`q_p9a9Ktp6P}gAPuvqAa9qp$3Nu$-hgtK^_RCFr=}`b1!C%Tiuz'
    ')2pt3rf?DO8+j_t`(Ml<`T;oLHJhafz+8Lyy_d@&2uPboqfEx~lg7r}wK?R;Xu~&5+INqLV{id5lFBr1pl+>@Bjr'
    '!s4C=o9#MoOdyCCC)DkbMFwYg@Qow)_Ez13sofmGke~Bvv7%7{Dj)t+bjTzA7gOQtx$5Lj;MxszVq8ZCdYUvFvIk'
    'r3^WpIIfIas5&I75dtHa$^Sr3@Tn=I76dnG-+0yJ&JvhNDE87cS%LB+|c4Y!t?SKeWNcrcttU&G*l-}Gq|C*a}AY'
    'LK&VANlUiR+JR5H;BqAXCCZd5I_y8?KH}+=CIv~Ed1t34G5!pAkRPfAe4ey3a3C#++U{x30^;+C)GNIlxa?H#2tm'
    'f-o>c^U{2@0Mx;aj^NON%xWksXKQtq~Qf5fXKbqxh`Z67E6@Lpd)qAM>C~u%4wYHBI)Sw$*IVz<wb?HAqhcG%PRK'
    '}MC{FObLw2ZbYuhM8$^AhOB-(AMyMBs00xCG?mbHS6^&0o9JbI{!Vvub_jTWXEpN50b#us93kW7=VER1LhuxY?dL'
    '#qxbxERA~<cp`$lS;tWpk)6K?3@Pd|*MH5NvZ~W<+5TLJ-_=25N^X$@8t_;R4w?4nzmx$yGSLUd$+uXLcF25pCHO'
    'mW`jT}iq1XV7C7bgL)yWP300000Nmw`T-RFRu00EU8fZziF_8fRbvBYQl0ssI200dcD'
)
# fmt: on
