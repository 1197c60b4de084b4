"""The currencies of the game world. `rate` is how much of one the main currency, KRO, is worth."""

from decimal import Decimal

from mint.model import Currency

ALL = [
    Currency(code="KRO", name="crown", places=2, rate="1"),
    Currency(
        code="ABJ",
        name="ember crown",
        places=2, rate="9.80",
    ),
    Currency(
        code="AEL",
        name="fjord crown",
        places=0, rate="4.52",
    ),
    Currency(
        code="AEW",
        name="grove crown",
        places=3, rate="1.82",
    ),
    Currency(
        code="AFH",
        name="haven crown",
        places=0, rate="2.26",
    ),
    Currency(
        code="AFR",
        name="isle crown",
        places=3, rate="3.18",
    ),
    Currency(
        code="AHB",
        name="juniper crown",
        places=3, rate="9.57",
    ),
    Currency(
        code="ARL",
        name="knoll crown",
        places=2, rate="1.14",
    ),
    Currency(
        code="BDF",
        name="lagoon crown",
        places=3, rate="8.16",
    ),
    Currency(
        code="BGZ",
        name="meadow crown",
        places=2, rate="3.43",
    ),
    Currency(
        code="BKD",
        name="north crown",
        places=2, rate="6.36",
    ),
    Currency(
        code="BKR",
        name="oasis crown",
        places=2, rate="8.96",
    ),
    Currency(
        code="BPS",
        name="prairie crown",
        places=2, rate="6.48",
    ),
    Currency(
        code="BZP",
        name="quarry crown",
        places=2, rate="2.64",
    ),
    Currency(
        code="CHB",
        name="ridge crown",
        places=2, rate="8.23",
    ),
    Currency(
        code="CHU",
        name="shoal crown",
        places=2, rate="7.78",
    ),
    Currency(
        code="CJR",
        name="tundra crown",
        places=3, rate="7.58",
    ),
    Currency(
        code="CSF",
        name="upland crown",
        places=3, rate="1.32",
    ),
    Currency(
        code="CWF",
        name="vale crown",
        places=2, rate="2.13",
    ),
    Currency(
        code="DCS",
        name="willow crown",
        places=2, rate="1.52",
    ),
    Currency(
        code="DCZ",
        name="yarrow crown",
        places=0, rate="3.23",
    ),
    Currency(
        code="DHV",
        name="ember mark",
        places=2, rate="6.60",
    ),
    Currency(
        code="DNF",
        name="fjord mark",
        places=3, rate="3.62",
    ),
    Currency(
        code="DPF",
        name="grove mark",
        places=3, rate="5.26",
    ),
    Currency(
        code="DUT",
        name="haven mark",
        places=2, rate="9.45",
    ),
    Currency(
        code="DWZ",
        name="isle mark",
        places=0, rate="9.79",
    ),
    Currency(
        code="EGJ",
        name="juniper mark",
        places=2, rate="9.61",
    ),
    Currency(
        code="ENG",
        name="knoll mark",
        places=0, rate="3.86",
    ),
    Currency(
        code="EWC",
        name="lagoon mark",
        places=2, rate="5.61",
    ),
    Currency(
        code="FCL",
        name="meadow mark",
        places=2, rate="6.29",
    ),
    Currency(
        code="FEC",
        name="north mark",
        places=0, rate="1.53",
    ),
    Currency(
        code="FNM",
        name="oasis mark",
        places=3, rate="5.80",
    ),
    Currency(
        code="FTN",
        name="prairie mark",
        places=0, rate="2.72",
    ),
    Currency(
        code="FUL",
        name="quarry mark",
        places=0, rate="8.54",
    ),
    Currency(
        code="FVP",
        name="ridge mark",
        places=0, rate="1.62",
    ),
    Currency(
        code="GJE",
        name="shoal mark",
        places=2, rate="2.45",
    ),
    Currency(
        code="GLP",
        name="tundra mark",
        places=0, rate="3.24",
    ),
    Currency(
        code="GMV",
        name="upland mark",
        places=3, rate="1.88",
    ),
    Currency(
        code="GPC",
        name="vale mark",
        places=2, rate="4.56",
    ),
    Currency(
        code="GUF",
        name="willow mark",
        places=2, rate="7.41",
    ),
    Currency(
        code="GZP",
        name="yarrow mark",
        places=3, rate="2.90",
    ),
    Currency(
        code="HUS",
        name="ember penny",
        places=3, rate="9.98",
    ),
    Currency(
        code="JCN",
        name="fjord penny",
        places=2, rate="5.42",
    ),
    Currency(
        code="JSU",
        name="grove penny",
        places=0, rate="4.37",
    ),
    Currency(
        code="JVR",
        name="haven penny",
        places=2, rate="3.78",
    ),
    Currency(
        code="JVZ",
        name="isle penny",
        places=0, rate="3.72",
    ),
    Currency(
        code="KCA",
        name="juniper penny",
        places=2, rate="6.62",
    ),
    Currency(
        code="KGC",
        name="knoll penny",
        places=2, rate="6.57",
    ),
    Currency(
        code="KLP",
        name="lagoon penny",
        places=2, rate="9.38",
    ),
    Currency(
        code="KLV",
        name="meadow penny",
        places=2, rate="7.16",
    ),
    Currency(
        code="KPW",
        name="north penny",
        places=0, rate="7.50",
    ),
    Currency(
        code="KRU",
        name="oasis penny",
        places=2, rate="2.18",
    ),
    Currency(
        code="KSZ",
        name="prairie penny",
        places=2, rate="1.26",
    ),
    Currency(
        code="KUW",
        name="quarry penny",
        places=0, rate="2.33",
    ),
    Currency(
        code="LAE",
        name="ridge penny",
        places=3, rate="2.65",
    ),
    Currency(
        code="LFN",
        name="shoal penny",
        places=2, rate="5.26",
    ),
    Currency(
        code="LNA",
        name="tundra penny",
        places=0, rate="6.31",
    ),
    Currency(
        code="LPS",
        name="upland penny",
        places=3, rate="2.95",
    ),
    Currency(
        code="LWH",
        name="vale penny",
        places=3, rate="6.52",
    ),
    Currency(
        code="MAN",
        name="willow penny",
        places=2, rate="5.83",
    ),
    Currency(
        code="MAR",
        name="yarrow penny",
        places=3, rate="0.5",
    ),
    Currency(
        code="MCF",
        name="ember florin",
        places=0, rate="8.89",
    ),
    Currency(
        code="MHL",
        name="fjord florin",
        places=0, rate="4.82",
    ),
    Currency(
        code="MKJ",
        name="grove florin",
        places=2, rate="7.86",
    ),
    Currency(
        code="MKU",
        name="haven florin",
        places=2, rate="5.74",
    ),
    Currency(
        code="MUH",
        name="isle florin",
        places=0, rate="1.93",
    ),
    Currency(
        code="NKB",
        name="juniper florin",
        places=2, rate="3.91",
    ),
    Currency(
        code="NMJ",
        name="knoll florin",
        places=3, rate="1.68",
    ),
    Currency(
        code="NTM",
        name="lagoon florin",
        places=3, rate="9.60",
    ),
    Currency(
        code="PAT",
        name="meadow florin",
        places=3, rate="1.26",
    ),
    Currency(
        code="PBV",
        name="north florin",
        places=2, rate="8.11",
    ),
    Currency(
        code="PBW",
        name="oasis florin",
        places=0, rate="6.91",
    ),
    Currency(
        code="PCJ",
        name="prairie florin",
        places=2, rate="8.39",
    ),
    Currency(
        code="PCZ",
        name="quarry florin",
        places=0, rate="9.28",
    ),
    Currency(
        code="PFZ",
        name="ridge florin",
        places=2, rate="4.14",
    ),
    Currency(
        code="PSE",
        name="shoal florin",
        places=2, rate="5.83",
    ),
    Currency(
        code="RAH",
        name="tundra florin",
        places=2, rate="4.24",
    ),
    Currency(
        code="RAN",
        name="upland florin",
        places=3, rate="5.72",
    ),
    Currency(
        code="RBW",
        name="vale florin",
        places=0, rate="1.44",
    ),
    Currency(
        code="RJA",
        name="willow florin",
        places=2, rate="5.72",
    ),
    Currency(
        code="RWP",
        name="yarrow florin",
        places=2, rate="9.71",
    ),
    Currency(
        code="SGB",
        name="ember ducat",
        places=2, rate="3.88",
    ),
    Currency(
        code="SHL",
        name="fjord ducat",
        places=0, rate="7.63",
    ),
    Currency(
        code="SNA",
        name="grove ducat",
        places=2, rate="4.24",
    ),
    Currency(
        code="SNM",
        name="haven ducat",
        places=2, rate="4.59",
    ),
    Currency(
        code="SVR",
        name="isle ducat",
        places=2, rate="1.62",
    ),
    Currency(
        code="TGV",
        name="juniper ducat",
        places=3, rate="2.44",
    ),
    Currency(
        code="TMD",
        name="knoll ducat",
        places=0, rate="3.44",
    ),
    Currency(
        code="UDC",
        name="lagoon ducat",
        places=3, rate="4.37",
    ),
    Currency(
        code="UEV",
        name="meadow ducat",
        places=2, rate="4.10",
    ),
    Currency(
        code="UFT",
        name="north ducat",
        places=3, rate="5.75",
    ),
    Currency(
        code="UGR",
        name="oasis ducat",
        places=2, rate="4.63",
    ),
    Currency(
        code="UHJ",
        name="prairie ducat",
        places=2, rate="2.32",
    ),
    Currency(
        code="UJZ",
        name="quarry ducat",
        places=3, rate="7.34",
    ),
    Currency(
        code="UKJ",
        name="ridge ducat",
        places=3, rate="4.15",
    ),
    Currency(
        code="UKR",
        name="shoal ducat",
        places=3, rate="9.37",
    ),
    Currency(
        code="UPH",
        name="tundra ducat",
        places=3, rate="2.12",
    ),
    Currency(
        code="URC",
        name="upland ducat",
        places=2, rate="1.33",
    ),
    Currency(
        code="UVP",
        name="vale ducat",
        places=0, rate="6.14",
    ),
    Currency(
        code="UWP",
        name="willow ducat",
        places=2, rate="1.75",
    ),
    Currency(
        code="UZD",
        name="yarrow ducat",
        places=3, rate="7.99",
    ),
    Currency(
        code="VBW",
        name="ember thaler",
        places=0, rate="6.83",
    ),
    Currency(
        code="VKP",
        name="fjord thaler",
        places=3, rate="8.90",
    ),
    Currency(
        code="VLD",
        name="grove thaler",
        places=2, rate="2.38",
    ),
    Currency(
        code="VMF",
        name="haven thaler",
        places=0, rate="5.17",
    ),
    Currency(
        code="VMZ",
        name="isle thaler",
        places=3, rate="3.10",
    ),
    Currency(
        code="VSA",
        name="juniper thaler",
        places=2, rate="2.17",
    ),
    Currency(
        code="VTR",
        name="knoll thaler",
        places=2, rate="4.23",
    ),
    Currency(
        code="WFR",
        name="lagoon thaler",
        places=0, rate="2.41",
    ),
    Currency(
        code="WGM",
        name="meadow thaler",
        places=2, rate="3.21",
    ),
    Currency(
        code="WMK",
        name="north thaler",
        places=3, rate="8.77",
    ),
    Currency(
        code="WRA",
        name="oasis thaler",
        places=2, rate="5.73",
    ),
    Currency(
        code="WRD",
        name="prairie thaler",
        places=2, rate="8.75",
    ),
    Currency(
        code="WVD",
        name="quarry thaler",
        places=0, rate="1.15",
    ),
    Currency(
        code="YEX",
        name="ridge thaler",
        places=0, rate="130",
    ),
    Currency(
        code="ZEM",
        name="shoal thaler",
        places=2, rate="9.95",
    ),
    Currency(
        code="ZFU",
        name="tundra thaler",
        places=2, rate="3.10",
    ),
    Currency(
        code="ZFW",
        name="upland thaler",
        places=2, rate="6.74",
    ),
    Currency(
        code="ZNJ",
        name="vale thaler",
        places=2, rate="8.10",
    ),
    Currency(
        code="ZOL",
        name="willow thaler",
        places=2, rate="4.25",
    ),
    Currency(
        code="ZPM",
        name="yarrow thaler",
        places=2, rate="7.40",
    ),
    Currency(
        code="ZPN",
        name="ember groat",
        places=2, rate="6.87",
    ),
    Currency(
        code="ZSB",
        name="fjord groat",
        places=2, rate="1.52",
    ),
]

BY_CODE = {currency.code: currency for currency in ALL}


def convert(amount, source, target):
    """An amount in another currency, rounded half even to its places."""
    exact = amount / Decimal(BY_CODE[source].rate) * Decimal(BY_CODE[target].rate)
    return exact.quantize(Decimal(1).scaleb(-BY_CODE[target].places))
